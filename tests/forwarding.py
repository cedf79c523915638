"""A forwarder on loopback for clients that cannot send a token: it adds the header, and puts names of a book in place
of the fixtures that a program asks for. Answers go back as they come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit


class _Forwarder:
    def __init__(self, to: str, token: str, names: Mapping[str, str]) -> None:
        target = urlsplit(to)
        assert target.hostname is not None
        self._host, self._port, self._token, self._names = target.hostname, target.port, token, names

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(self._host, self._port)
        back = asyncio.create_task(_pass_on(from_server, writer))
        try:
            while True:
                to_server.write(await self._request(reader))
                await to_server.drain()
        except (asyncio.IncompleteReadError, ConnectionError):  # the client has ended the connection
            to_server.close()
            await back

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        """One request, with the token. Clients that are forwarded send bodies with their length."""
        line, *headers = (await reader.readuntil(b"\r\n\r\n")).rstrip(b"\r\n").split(b"\r\n")
        lengths = [header for header in headers if header.lower().startswith(b"content-length:")]
        body = await reader.readexactly(int(lengths[0].partition(b":")[2])) if lengths else b""
        for name, ours in self._names.items():
            body = body.replace(name.encode(), ours.encode())
        others = [header for header in headers if header not in lengths]
        more = [b"Authorization: Bearer " + self._token.encode(), b"Content-Length: %d" % len(body)]
        return b"\r\n".join([line, *others, *more, b"", body])


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:  # the client did not wait for the answer
        pass
    finally:
        writer.close()


@contextmanager
def forwarded(to: str, token: str, names: Mapping[str, str]) -> Iterator[str]:
    """The URL of a forwarder to a server, until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    forwarder = _Forwarder(to, token, names)
    starting = asyncio.start_server(forwarder.handle, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(10)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(_ended(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _ended(server: asyncio.Server) -> None:
    server.close()
    connections = asyncio.all_tasks() - {asyncio.current_task()}
    for each in connections:
        each.cancel()
    await asyncio.gather(*connections, return_exceptions=True)
