"""A forwarder on loopback for clients that cannot send a token: it adds the header, and puts names of a book in place
of the fixtures that a program asks for. Answers go back as they come."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from urllib.parse import urlsplit


class _Forwarder(ThreadingTCPServer):
    def __init__(self, to: str, token: str, names: Mapping[str, str]) -> None:
        target = urlsplit(to)
        assert target.hostname is not None
        assert target.port is not None
        self.target, self.token, self.names = (target.hostname, target.port), token, names
        super().__init__(("127.0.0.1", 0), _Connection)


class _Connection(StreamRequestHandler):
    server: _Forwarder

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as server:
            back = Thread(target=_pass_on, args=(server, self.connection))
            back.start()
            with suppress(ConnectionError):  # the client did not wait for the answer
                while request := self._request():
                    server.sendall(request)
            with suppress(OSError):  # it has ended already
                server.shutdown(socket.SHUT_RDWR)
            back.join()

    def _request(self) -> bytes:
        """One request, with the token; nothing if there is none any more. Bodies come with their length."""
        head = list[bytes]()
        while (line := self.rfile.readline()) != b"\r\n":
            if not line:
                return b""
            head.append(line)
        length = next((line for line in head if line.lower().startswith(b"content-length:")), None)
        body = b"" if length is None else self.rfile.read(int(length.partition(b":")[2]))
        for name, ours in self.server.names.items():
            body = body.replace(name.encode(), ours.encode())
        others = [line for line in head if line is not length]
        token = f"Authorization: Bearer {self.server.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        return b"".join([*others, token.encode(), body])


def _pass_on(server: socket.socket, client: socket.socket) -> None:
    with suppress(ConnectionError):  # the client did not wait for the answer
        while piece := server.recv(65536):
            client.sendall(piece)
    with suppress(OSError):  # it has ended already
        client.shutdown(socket.SHUT_RDWR)


@contextmanager
def forwarded(to: str, token: str, names: Mapping[str, str]) -> Iterator[str]:
    """The URL of a forwarder to a server, until the block ends. Its clients have ended by then."""
    with _Forwarder(to, token, names) as forwarder:
        thread = Thread(target=forwarder.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{forwarder.server_address[1]}"
        finally:
            forwarder.shutdown()
            thread.join()
