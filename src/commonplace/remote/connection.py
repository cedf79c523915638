"""The way to one server: connections, the token, deadlines, and how a call is sent again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from http.client import HTTPResponse
from io import BufferedReader, RawIOBase
from ipaddress import ip_address
from threading import Event as Flag
from time import monotonic
from typing import Any, BinaryIO, NamedTuple, NoReturn
from urllib.parse import urlsplit

import msgspec

from ..errors import (
    BadInput,
    BookClosed,
    CommonplaceError,
    EngineUnavailable,
    ForkedBook,
    HiddenText,
    MissingExtra,
    OutcomeUnknown,
    Unauthorized,
    shown,
)
from ..telemetry import carry
from ..version import install_hint
from ..wire import TYPED

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""How many seconds to wait before a call is sent again."""
QUIET = 60.0
"""After how many seconds without a word a stream is taken for broken. A server says every 15 that it is still there."""
PART = 1 << 18
"""How many bytes of a file are read at once."""
CONNECTIONS = 64
"""How many connections are kept for later calls."""
UNREADABLE = (
    CommonplaceError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    ImportError,
)
"""What reading something raises that no server of ours has sent."""


class Address(NamedTuple):
    """Where a server is: the parts of its URL."""

    scheme: str
    host: str
    port: int | None
    path: str

    @property
    def is_private(self) -> bool:
        """Whether what is sent there can be read by nobody on the way: by TLS, or because it stays on this host."""
        if self.scheme == "https" or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def address_of(url: str) -> Address:
    """The parts of a URL. Raises BadInput that does not repeat what may be a secret in it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadInput(f"this is not the URL of a server ({error}): give http://host:port") from None
    if parts.username is not None or parts.password is not None:
        raise BadInput("leave user and password out of the URL: a server takes token=…")
    if not parts.hostname or parts.query or parts.fragment or any(ord(char) <= 32 for char in url):
        raise BadInput(
            f"{shown(url)} is not the URL of a server: give http://host:port, and nothing behind it"
        )
    return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


def bearer(token: str) -> HiddenText:
    """The header that a token is sent in. Raises BadInput."""
    if (
        not isinstance(token, str)
        or not token
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise BadInput("the token is not one: give the text that `commonplace access create-token` has shown")
    return HiddenText(f"Bearer {token}")


class ServerCall(NamedTuple):
    """One call of a server, and what its caller knows of it."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    key: str | None = None
    """The idempotency key: a process of the server makes a call with this key only once. None: the call only reads."""
    ids: tuple[str, ...] = ()
    """Of what it makes."""
    repeatable: bool = False
    """Whether another process of the server answers as the first one did."""
    into: BinaryIO | None = None
    """Takes the content of the file that the server sends with its answer."""
    read: Callable[[Any], Any] = lambda answer: answer
    """Turns the server's JSON into the caller's answer."""

    @property
    def writes(self) -> bool:
        return self.key is not None


class _NotSent(Exception):
    """No connection was made: nothing was sent."""


class _Broken(Exception):
    """The connection broke after something was sent."""


class ServerConnection:
    """The way to one server. Safe to share between threads; a child process has to make its own."""

    def __init__(self, url: str, token: str | None, timeout: float, *, insecure: bool = False) -> None:
        try:
            import urllib3
        except ImportError as error:
            raise MissingExtra(f"a book behind a server needs urllib3: {install_hint('client')}") from error
        self._address = address_of(url)
        if token is None:
            raise Unauthorized(
                f"the server at {self._address.host} needs a token: give open() token=…, or set COMMONPLACE_TOKEN or "
                "COMMONPLACE_TOKEN_FILE. On its host `commonplace access create-token` makes one"
            )
        if not (insecure or self._address.is_private):
            raise BadInput(
                f"whoever listens on the way to {self._address.host} would read the token, because http:// is not "
                "encrypted: use https://, or say insecure=True where the network is trusted"
            )
        self.url, self.timeout = url.rstrip("/"), timeout
        self._authorization = bearer(token)
        self._exceptions, self._timeout = urllib3.exceptions, urllib3.Timeout
        self._calls = _pool(self._address, CONNECTIONS, _AnswerInTime)
        self._streams = _pool(self._address, 1, partial(_Stream, begins_within=timeout))
        self._open_streams = set[Any]()
        self._closing = Flag()
        self._process = os.getpid()
        self.book: str | None = None
        """The id of the book, as soon as the server has said it."""
        self.instance: str | None = None
        """Which process of the server has answered last."""

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a book behind a server cannot be pickled: open it in each process")

    # calls

    def ask(self, call: ServerCall) -> Any:
        """What the server answers.

        A call is sent again until its deadline when the server is busy or cannot be reached; a call that writes carries
        its key. Raises OutcomeUnknown if a call that writes may have landed and nothing tells what came of it, and
        EngineUnavailable if none has."""
        deadline, pause, may_have_landed = monotonic() + self.timeout, FIRST_PAUSE, False
        sent_to: str | None = None  # the process of the server that it may have landed in
        headers = dict(call.headers)
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        while True:
            # Before it is sent: a later answer to another thread may be of a new process.
            process = self.instance
            try:
                response = self._send(call, headers, deadline)
            except _NotSent as error:
                trouble: Exception = error
            except _Broken as error:
                trouble = error
                may_have_landed |= call.writes
            except BookClosed as error:
                if may_have_landed:
                    raise OutcomeUnknown(call.ids, "the book was closed meanwhile") from None
                raise error from None
            else:
                self.instance = response.headers.get("Commonplace-Instance", self.instance)
                if response.status == 200:
                    return self._answer(call, response)
                told = told_by(response)
                trouble = error_of(response, told, self.url)
                if not told and response.status >= 500:  # something before the server, or in its place
                    may_have_landed |= call.writes
                elif not is_refusal_for_now(response.status, told):
                    if may_have_landed and not is_about_first_try(response, sent_to):
                        raise OutcomeUnknown(call.ids, f"sent again, it was answered: {trouble}") from None
                    raise trouble
                pause = max(pause, retry_after(response))
            if may_have_landed and sent_to is None and process is not None:
                sent_to = process
                if not call.repeatable:
                    headers["Commonplace-Sent-To"] = process
            if monotonic() + pause > deadline:
                if may_have_landed:
                    raise OutcomeUnknown(call.ids, f"{trouble}") from None
                if isinstance(trouble, CommonplaceError):
                    raise trouble
                raise EngineUnavailable(f"the server at {self.url} did not answer: {trouble}") from None
            self._closing.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _answer(self, call: ServerCall, response: Any) -> Any:
        """What the caller is answered. Raises EngineUnavailable for what no server of ours would send, and
        OutcomeUnknown if the call writes."""
        try:
            sent = response.data if call.into is None else response.headers.get("Commonplace-Answer", "")
            return call.read(msgspec.json.decode(sent))
        except UNREADABLE as error:
            what = f"{error}" if isinstance(error, CommonplaceError) else type(error).__name__
            why = f"what answered at {self.url} is no commonplace server of this version ({what})"
            if call.writes:
                raise OutcomeUnknown(call.ids, why) from error
            raise EngineUnavailable(why) from error

    def _send(self, call: ServerCall, headers: Mapping[str, str], deadline: float) -> Any:
        left, into = max(deadline - monotonic(), 0.001), call.into
        timeout = self._timeout(total=left, connect=left, read=left)
        with self._told_errors():
            response = self._calls.urlopen(
                call.method, self._address.path + call.path, body=call.body, headers=self._headers(headers),
                timeout=timeout, retries=False, redirect=False, assert_same_host=False, preload_content=into is None,
            )  # fmt: skip
            if into is not None and response.status != 200:
                response.read(cache_content=True)
        if into is not None and response.status == 200:
            self._receive(response, into)
        return response

    def _receive(self, response: Any, into: BinaryIO) -> None:
        """Read an answer to its end, into a file that may hold a part of an earlier try."""
        into.seek(0)
        into.truncate()
        parts = response.stream(PART, decode_content=True)
        try:
            while True:
                with self._told_errors():
                    part = next(parts, None)
                if part is None:
                    return
                into.write(part)
        except BaseException:
            response.close()
            raise

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        own = {"Accept": TYPED, "Content-Type": TYPED, **headers}
        carry(own)
        return {**own, "Authorization": self._authorization}

    @contextmanager
    def _told_errors(self) -> Iterator[None]:
        """Errors of the connection, by whether something was sent. Raises BookClosed after `close`, and ForkedBook in a
        child process, which has the same connections as its parent."""
        if os.getpid() != self._process:
            raise ForkedBook("this book was opened before a fork: open it again in the child process")
        if self.closed:
            raise BookClosed("this book is closed: open it again")
        exceptions = self._exceptions
        try:
            yield
        except (
            exceptions.NewConnectionError,
            exceptions.ConnectTimeoutError,
            exceptions.NameResolutionError,
        ) as error:
            raise _NotSent(_plain(error)) from None
        except exceptions.SSLError as error:
            if "CERTIFICATE" not in str(error).upper():
                raise _Broken(_plain(error)) from None
            raise EngineUnavailable(
                f"the certificate of {self.url} is not one that this host trusts ({error}): name the file of its "
                "authority in the variable SSL_CERT_FILE"
            ) from None
        except exceptions.LocationParseError as error:
            raise BadInput(f"{shown(self.url)} is not the URL of a server: {error}") from None
        except (exceptions.HTTPError, OSError) as error:
            raise _Broken(_plain(error)) from None

    # streams

    def stream(self, path: str, headers: Mapping[str, str], quiet: float) -> Iterator[bytes]:
        """The lines of an event stream, until the server ends it or the book is closed. Raises EngineUnavailable when
        it breaks, and after `quiet` seconds without a line."""
        timeout = self._timeout(connect=self.timeout, read=quiet)
        try:
            with self._told_errors():
                response = self._streams.urlopen(
                    "GET", self._address.path + path, headers=self._headers(headers), timeout=timeout, retries=False,
                    redirect=False, assert_same_host=False, preload_content=False,
                )  # fmt: skip
        except (_NotSent, _Broken) as error:
            raise EngineUnavailable(f"the server at {self.url} did not answer: {error}") from None
        self._open_streams.add(response)
        try:
            if response.status != 200:
                with self._told_errors():
                    response.read()
                raise error_of(response, told_by(response), self.url)
            if self.closed:
                return
            rest = b""
            for part in response.stream(65536, decode_content=True):
                *lines, rest = (rest + part).split(b"\n")
                yield from lines
        except (self._exceptions.HTTPError, OSError, _Broken) as error:
            raise EngineUnavailable(f"the stream of {self.url} broke: {_plain(error)}") from None
        finally:
            self._open_streams.discard(response)
            response.close()

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the connection."""
        self._closing.wait(seconds)

    def close(self) -> None:
        """Later calls raise BookClosed, streams end; a call that is under way gets its answer."""
        self._closing.set()
        if os.getpid() != self._process:
            return
        for response in list(self._open_streams):
            try:
                response.shutdown()
            except (RuntimeError, ValueError, OSError):
                continue  # it has ended in this moment
        self._calls.close()
        self._streams.close()


def _plain(error: Exception) -> str:
    """What a driver's error says, without the objects that it names."""
    text = str(error)
    return text.rpartition("): ")[2] if text.startswith(("HTTP", "<")) else text


# deadlines


class _InTime(RawIOBase):
    """Reads of a socket until a deadline: the timeout of a socket alone begins anew with every byte."""

    def __init__(self, inner: Any, socket: Any) -> None:
        self._inner, self._socket = inner, socket
        self._deadline = monotonic() + socket.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        read: int | None = self._inner.raw.readinto(buffer)
        return read

    def close(self) -> None:
        self._inner.close()
        super().close()


class _AnswerInTime(HTTPResponse):
    """An answer that is read to its end before the timeout that its connection had when it was begun."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = BufferedReader(_InTime(self.fp, sock))


class _Stream(HTTPResponse):
    """An answer whose head arrives within a time of its own; the timeout of its connection is that of each later read.
    The socket is kept here: the connection parts with it when the server closes after the answer."""

    def __init__(self, sock: Any, *args: Any, begins_within: float, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._socket, self._begins_within = sock, begins_within

    def begin(self) -> None:
        quiet = self._socket.gettimeout()
        self._socket.settimeout(self._begins_within)
        super().begin()
        self._socket.settimeout(quiet)


def _pool(address: Address, most: int, answer: Callable[..., HTTPResponse]) -> Any:
    """Connections to one server. `answer` is the class of what they receive."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool

    base: Any = HTTPSConnectionPool if address.scheme == "https" else HTTPConnectionPool
    pool = base(address.host, address.port, maxsize=most, block=False)
    kind = pool.ConnectionCls
    pool.ConnectionCls = type(kind.__name__, (kind,), {"response_class": staticmethod(answer)})
    return pool


# what a server says


def told_by(response: Any) -> dict[str, Any]:
    """The problem that an answer describes; {} if it describes none."""
    if response.status == 200:
        return {}
    try:
        told = msgspec.json.decode(response.data)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return told if isinstance(told, dict) and isinstance(told.get("code"), str) else {}


def is_refusal_for_now(status: int, told: Mapping[str, Any]) -> bool:
    """Whether the server says that nothing was done, and that the call may be sent again."""
    return status == 429 or told.get("code") == BookClosed.code


def is_about_first_try(response: Any, sent_to: str | None) -> bool:
    """Whether the answer to a call that was sent again says what came of the first try: it is of the same process of
    the server, which has looked at the key. It has not where it refuses the client, or cannot read the request."""
    instance = response.headers.get("Commonplace-Instance", "")
    seen = response.headers.get("Commonplace-Key") == "seen"
    return seen and sent_to is not None and instance.partition(".")[0] == sent_to.partition(".")[0]


def retry_after(response: Any) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0


def error_of(response: Any, told: Mapping[str, Any], url: str) -> CommonplaceError:
    """The error that the server has raised."""
    if told:
        return error_from(told, str(told.get("detail", "")))
    if 300 <= response.status < 400:
        place = shown(response.headers.get("Location", "another address"))
        return EngineUnavailable(
            f"{url} sends on to {place}, and a token is not sent on: open the book there"
        )
    return EngineUnavailable(
        f"what answered at {url} is no commonplace server: HTTP status {response.status}"
    )


def error_from(told: Mapping[str, Any], message: str) -> CommonplaceError:
    """An error by its code, with the message and the fields that it had."""
    kind = _errors().get(str(told["code"]), CommonplaceError)
    error = kind.__new__(kind)
    error.args = (message,)
    own = () if kind.code == told["code"] else ("code", "status")
    for name, value in told.items():
        if name.startswith("_") or name in ("args", "add_note", "with_traceback"):
            continue  # no field of ours is called so
        if name in own or name not in ("type", "title", "detail", "message", "status", "code", "request_id"):
            setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


@cache
def _errors() -> dict[str, type[CommonplaceError]]:
    return {
        kind.code: kind
        for kind in vars(sys.modules[CommonplaceError.__module__]).values()
        if isinstance(kind, type) and issubclass(kind, CommonplaceError)
    }
