"""Who may make a request: the Host and Origin it names, its token, and how often it comes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple, TypeVar

from starlette.requests import Request

from ...errors import BadInput, Denied, Unauthorized, shown
from ..network import Caller
from .limits import FairThreads, Rate, ServerLimits, Slots
from .messages import header, header_list

T = TypeVar("T")

STRANGERS = "strangers"
"""The lane of all requests whose tokens were not valid here before."""
LOOKUPS, LOOKUPS_EACH = 4, 2
"""How many tokens are looked up at the same time, and how many of them in one lane."""


class Admission(NamedTuple):
    """Who calls, by which token, and whether the token allows a verb."""

    caller: Caller
    token: str
    allows: Callable[[str], bool]


Authenticate = Callable[[str], Admission]
"""Answers who has a token, or raises Unauthorized."""


class Gate:
    """Lets requests in. A token is looked up for each request, so that one that was revoked ends at once.

    A flood of requests with invalid tokens must not delay clients that have valid ones. So a token that was valid here
    before is looked up in its client's own lane, and all others share one lane, and a rate for each address. A lookup
    is short and has threads of its own: behind the calls of many busy clients, a new client would never be let in.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        limits: ServerLimits,
        hosts: tuple[str, ...],
        origins: tuple[str, ...],
    ) -> None:
        self._authenticate, self._threads = authenticate, FairThreads(LOOKUPS, LOOKUPS_EACH)
        self._hosts, self._origins = frozenset(name.lower() for name in hosts), frozenset(origins)
        self._rate = Rate(limits.rate, "with this token")
        self._unknown_rate = Rate(limits.unknown_rate, "from this address without a valid token")
        self._known = Slots("requests", limits.at_once, limits.at_once_each)
        self._unknown = Slots("requests without a valid token", limits.at_once, limits.at_once)
        self._valid_before: OrderedDict[bytes, None] = OrderedDict()

    async def admit(self, request: Request) -> Admission:
        """Who has the token of a request. Raises Denied, Unauthorized and TooManyRequests."""
        self._check_place(request)
        return await self._looked_up(request)

    def as_asked(self, request: Request, admission: Admission) -> Admission:
        """The caller, acting as the request asks to. Raises Denied, and TooManyRequests for one that asks too often."""
        self._rate.take(admission.token)
        return _as_asked(request, admission)

    async def look_up(self, client: str, read: Callable[[], T]) -> T:
        """Read something short for somebody who must not wait behind the calls of clients."""
        return await self._threads.run(client, read)

    def finish(self) -> None:
        """Wait for the lookups that have begun; no other begins."""
        self._threads.finish()

    def again(self, request: Request) -> Admission:
        """Who makes a request that is still open. Raises Unauthorized once its token is valid no more."""
        return _as_asked(request, self._authenticate(token_of(request)))

    def _check_place(self, request: Request) -> None:
        """Raises Denied for a Host that is not ours, which a page that rebinds a name would send, and for a page of
        another site."""
        host = request.headers.get("host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name not in self._hosts:
            raise Denied(f"the Host {shown(host)} is not one of this server's: name it with --allow-host")
        origin = request.headers.get("origin")
        if origin is not None and origin not in self._origins and origin.partition("://")[2].lower() != host:
            raise Denied(f"the Origin {shown(origin)} is not allowed: name it with --allow-origin")

    async def _looked_up(self, request: Request) -> Admission:
        token = token_of(request)
        mark = sha256(token.encode()).digest()
        if mark in self._valid_before:
            try:
                with self._known.hold(mark.hex()):
                    return await self.look_up(mark.hex(), lambda: self._authenticate(token))
            except Unauthorized:
                self._valid_before.pop(mark, None)
                raise
        self._unknown_rate.take(request.client.host if request.client else "")
        with self._unknown.hold(STRANGERS):
            admission = await self.look_up(STRANGERS, lambda: self._authenticate(token))
        self._valid_before[mark] = None
        while len(self._valid_before) > 10_000:
            self._valid_before.popitem(last=False)
        return admission


def token_of(request: Request) -> str:
    """The token of a request. Raises Unauthorized if it has none."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthorized("this server needs a token: send it as `Authorization: Bearer …`")
    return token.strip()


def _fence(request: Request) -> int | None:
    """Raises BadInput."""
    text = header(request, "lead")
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadInput(
            f"Commonplace-Lead {shown(text)} is no fence: give the number that taking the lead has answered"
        )
    return None if text is None else int(text)


def _as_asked(request: Request, admission: Admission) -> Admission:
    """The caller, with the actor, scope, run and look that it asks to act in. Raises Denied for a look that the token
    does not allow."""
    caller = admission.caller._replace(
        as_actor=header(request, "actor"), in_scope=header(request, "scope"),
        reading=header_list(request, "reads"), run_id=header(request, "run"), look=header(request, "look"),
        lead=_fence(request),
    )  # fmt: skip
    if caller.look is not None and not admission.allows("access.look_as"):
        raise Denied("this token does not allow access.look_as")
    return admission._replace(caller=caller)
