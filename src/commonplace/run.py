"""A run as people use it: open it, let agents take their turns in it, read it as of any moment, fork it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import replace

from .access.commands import deny
from .access.rights import OWNER, check_actor
from .errors import BadInput, CommonplaceError, Denied, StorageFailed, UnsafePath, shown
from .files.safe import Folder
from .ledger.checks import check_if_position, check_name, check_text, check_whole
from .ledger.encoding import blobs_of, encode_payload
from .ledger.events import ERASED
from .ledger.events import new_id as new_event_id
from .participant import Actor
from .state.cells import State
from .state.policy import Persistence, Policy, Start
from .state.redaction import redactor_of
from .state.requests import (
    FAILED,
    FINISHED,
    STARTED,
    Change,
    Close,
    Fork,
    Merge,
    Merged,
    Open,
    Reopen,
    RunStep,
    Written,
)
from .state.rows import PROJECTION, OpenedRun, opened_run, steps_of, totals_of
from .state.sharing import sees_others, state_in, takes_part, visible_state
from .verbs import verb

if TYPE_CHECKING:
    from .ledger.ledger import At
    from .session import Session


class Run:
    """One run, as one actor sees it. The owner sees all of it, an agent what the sharing rules let it see.

    A `with` block closes it: completed, or failed when an exception leaves the block. A run that was not
    closed, for example because its process died, is still running: open it again by its id.
    """

    def __init__(
        self,
        session: Session,
        id: str,
        folder: Path | None = None,
        persistence: Persistence | None = None,
    ) -> None:
        self._session = session.acting_as(session.actor, id)
        self._ledger = session.ledger
        self.id = id
        self.viewer = session.actor
        self._folder = folder
        self._persistence = persistence if folder is not None else None

    def _submit(self, command: str, request: Any) -> Any:
        self._session.check_may_act(command)
        return self._session.write(command, request)

    # reading

    @verb
    def state(self, at: At = None) -> State:
        """The state as of `at`, as far as this run's viewer may see it. `.as_of` is the position.

        Under the cqrs model the present comes from a projection that may lag; `.as_of` says how far it is.
        """
        return visible_state(self._session, self.id, self.viewer, at)

    @verb
    def catch_up(self) -> int:
        """Update the projection of the cqrs model; returns the position that it has reached."""
        return self._ledger.follow(PROJECTION)

    @property
    @verb(reads=True)
    def status(self) -> str:
        """running, completed, partial, failed or cancelled."""
        with self._session.snapshot() as snapshot:
            return totals_of(snapshot, self.id).status

    @property
    @verb(reads=True)
    def policy(self) -> Policy:
        """The rules that hold in it."""
        return self._opened.policy

    @property
    @verb(reads=True)
    def depth(self) -> int:
        """How many runs it is within."""
        return self._opened.depth

    @property
    def _opened(self) -> OpenedRun:
        with self._session.snapshot() as snapshot:
            return opened_run(snapshot, self.id)

    @verb
    def steps(self) -> dict[str, dict[str, Any]]:
        """How far each node of the workflow's graph has come. An agent sees no results; under the strategy `isolated`
        it sees only its own node."""
        with self._session.snapshot() as snapshot:
            opened = opened_run(snapshot, self.id)
            steps = steps_of(snapshot, self.id, opened.fork)
            takes = takes_part(snapshot, self.id, opened, self.viewer)
        if self.viewer == OWNER:
            return steps
        nodes = steps if takes and sees_others(opened.policy) else {self.viewer}
        return {node: {**steps[node], "reason": "", "result": {}} for node in nodes if node in steps}

    def redacted(self, value: Any) -> Any:
        """A value without the secrets of this run, as a log or a page may show it. For the owner: others could
        find out secrets by guessing."""
        if self.viewer != OWNER:
            raise Denied("only the owner can have things redacted: what actors read already is")
        with self._session.snapshot() as snapshot:
            return redactor_of(snapshot, self.id)(value)

    # writing

    @verb
    def agent(self, name: str) -> Turn:
        """An agent's turn in this run, for a `with` block.

        `name` is the agent whose turn it is."""
        name = check_actor(name)
        if self.viewer not in (OWNER, name):
            why = f"{self.viewer!r} may not act as {name!r}: an actor takes its own turns"
            deny(self._session.acting_as(self.viewer, self.id), "run.agent", name, why)
        return Turn(self, name)

    @verb
    def step(self, node: str, status: str, **more: Any) -> int:
        """Mark how far a node has come.

        `node` is the node of the workflow's graph. `status` is started, iterated, retrying, finished, failed or
        skipped."""
        step = _step(self, node, status, more)
        position: int = self._submit("state.step", step)
        return position

    @verb(repeatable=True)
    def close(self, status: str = "completed", reason: str = "") -> None:
        """End the run. Safe to call twice.

        `status` is completed, partial, failed or cancelled."""
        self._submit("state.close", Close(self.id, status, check_text("reason", reason), self.viewer))
        self._save_if("per_agent", "per_run")

    @verb
    def reopen(self) -> bool:
        """Let a run continue that has ended without completing. Returns whether it was one."""
        reopened: bool = self._submit("state.reopen", Reopen(self.id, self.viewer))
        return reopened

    @verb(reads=False)
    def fork(self, at: At = None, new_id: str | None = None) -> Run:
        """A new run that begins as this one was at `at`. The cost does not depend on the size of the state.

        `new_id` is an id for the new run."""
        with self._session.snapshot(at) as snapshot:
            position = snapshot.position
        id = new_event_id() if new_id is None else check_name("new_id", new_id)
        self._submit("state.open", Open(id, self.viewer, fork=Fork(self.id, position)))
        fork = Run(self._session, id, self._folder, self._persistence)
        fork._begun()
        return fork

    @verb
    def merge(self, prefer: str | None = None) -> Merged:
        """Bring what this fork has written back into the run it came from. Where both have written, it is a
        Conflict that shows base, fork and target, unless `prefer` says "fork" or "target"."""
        merged: Merged = self._submit("state.merge", Merge(self.id, self.viewer, prefer))
        return merged

    @verb(of_host=("policy", "start", "folder", "persistence"))
    def child(
        self,
        new_id: str | None = None,
        *,
        policy: Policy | None = None,
        start: Start | None = None,
        workflow: Mapping[str, str] | None = None,
        inherit: Mapping[str, Any] | None = None,
        sources: tuple[int, ...] = (),
        folder: Path | None = None,
        persistence: Persistence | None = None,
    ) -> Run:
        """A run within this one, one level deeper. Its state begins with `inherit`, which comes from the events at
        the positions `sources`: what is erased there is erased in the child, too. Without a `policy`, this run's
        holds.

        `new_id` is an id for it. `inherit` is what its state begins with. `sources` are the positions of the events
        that `inherit` comes from. `workflow` says which workflow it is of: name and version. `policy` is the rules that
        hold in it. `start` is what its state begins with by its workflow. `folder` is where its files lie.
        `persistence` is how its state is kept in files."""
        for field, value, kind in (("policy", policy, Policy), ("start", start, Start)):
            if value is not None and not isinstance(value, kind):
                raise BadInput(f"{field} {shown(value)} is not a {kind.__name__}")
        if workflow is not None and not _is_plain(workflow):
            raise BadInput(
                f"workflow {shown(workflow)} is not a mapping of strings, such as {{'name': 'daily'}}"
            )
        opening = Open(
            new_event_id() if new_id is None else check_name("new_id", new_id),
            self.viewer,
            policy or self.policy,
            start or Start(),
            encode_payload(inherit or {})[1],
            encode_payload(workflow or {})[1],
            parent=self.id,
            sources=_positions(sources),
        )
        self._submit("state.open", opening)
        child = Run(self._session, opening.run, folder, persistence)
        child._begun()
        return child

    def save(self) -> Path:
        """Write the state to a file beside the workflow, as its `persistence` says, and return the path. The file
        is for people and other programs and holds no secrets; the ledger has everything."""
        self._session.check_may_act("run.save")
        while True:
            path, as_of = self._write_state()
            if not any(self._ledger.events(as_of, kinds=(ERASED,))):
                return path
            # Something was erased meanwhile, and the file may have come after its removal: write what is left.

    def _write_state(self) -> tuple[Path, int]:
        """Answers where the state was written, and as of which position."""
        persistence = self._persistence or Persistence()
        folder = Folder((self._folder or Path()).resolve())
        with self._session.snapshot() as snapshot:
            as_of = snapshot.position
            hide = redactor_of(snapshot, self.id, self.viewer)
            state = hide(dict(state_in(snapshot, self.id, self.viewer)))
        path = PurePosixPath(persistence.path, f"{file_name(self.id)}.{persistence.format}").as_posix()
        try:
            if persistence.format == "msgpack":
                data = msgspec.msgpack.encode(state)
            else:
                data = json.dumps(state, ensure_ascii=False, indent=2, sort_keys=True).encode()
        except OverflowError:
            raise BadInput(
                "msgpack cannot hold an integer this large: use state.persistence.format json"
            ) from None
        # First, so that erasing finds the file whatever happens.
        self._session.services.outside.saved(self.id, folder.path, path)
        try:
            folder.write(path, data)
        except (OSError, UnsafePath) as error:
            raise StorageFailed(
                f"the state cannot be written to {folder.path / path} ({error}); the ledger has it. Mend the place, or "
                "set state.persistence"
            ) from error
        return (self._folder or Path()) / path, as_of

    def _begun(self) -> None:
        """Update the projection of the cqrs model, which the runtime does at the start and after each turn."""
        if self.policy.model == "cqrs":
            self.catch_up()

    def _turn_ended(self) -> None:
        self._begun()
        self._save_if("per_agent")

    def _save_if(self, *intervals: str) -> None:
        persistence = self._persistence
        if persistence is not None and persistence.enabled and persistence.interval in intervals:
            self.save()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.close()
        elif isinstance(error, Exception):  # Ctrl-C leaves it open, so that it can be continued
            _beside(error, partial(self.close, "failed", plain_text(error)))

    def __repr__(self) -> str:
        return f"<Run {self.id!r} as {self.viewer}>"


class Turn(Actor):
    """One agent at work in a run: it has every verb and namespace that an actor has, inside the run, reads what it may
    see of the run's state, and writes its own entry."""

    def __init__(self, run: Run, agent: str) -> None:
        super().__init__(run._session.acting_as(agent, run.id))
        self.own_run = run
        """The run whose turn it takes."""
        self.agent = agent

    def __repr__(self) -> str:
        return f"<Turn of {self.agent!r} in the run {self.own_run.id!r}>"

    @property
    @verb(reads=True)
    def state(self) -> State:
        """What this agent may see of the run's state, now."""
        return visible_state(self._session, self.own_run.id, self.agent)

    @verb
    def write(
        self, output: Mapping[str, Any], *, if_position: int | None = None, partial: bool = False
    ) -> Written:
        """Write fields of this agent's own entry, all or nothing.

        Contract, limits and reserved keys are checked first. With `partial`, fields that the contract
        requires may still be missing; they must be there at the end of the turn. With `if_position` (the `as_of` of
        the state that was read) raises Conflict if one of these fields was written since.

        `output` are the fields to write. `partial` is whether fields that the contract requires may still be
        missing.
        """
        return self._change("set", output, if_position=if_position, partial=partial)

    @verb
    def emit(self, type: str, payload: Mapping[str, Any], *, if_position: int | None = None) -> Written:
        """An event of this agent: `set`, `append`, `increment` and `remove` act on the fields of the payload;
        any other type sets them, and its name stays in the ledger.

        `type` is set, append, increment, remove or a name of your own. `payload` are the fields that it acts on."""
        return self._change(type, payload, if_position=if_position, partial=True)

    command = emit
    """The same under the cqrs model, where agents issue commands and read from a projection."""

    @verb
    def finish(self, output: Mapping[str, Any] | None = None, **more: Any) -> None:
        """End the turn successfully, with a last write in the same commit if `output` is given.

        `output` are the fields to write."""
        self.write_with(output or {}, _step(self.own_run, self.agent, FINISHED, more))

    def write_with(self, output: Mapping[str, Any], step: RunStep, **more: Any) -> None:
        """Write an output together with what it means for its own node, in one commit."""
        if not isinstance(step, RunStep):
            raise BadInput(f"step {shown(step)} is not a RunStep")
        own = replace(step, run=self.own_run.id, node=self.agent, of="", by=self.own_run.viewer)
        self._change("set", output, step=own, **more)
        self.own_run._turn_ended()

    @verb
    def fail(self, error: BaseException | str | Mapping[str, str], **more: Any) -> None:
        """End the turn as failed; the error goes to `_errors`, without secrets.

        `error` is what went wrong: an exception, text, or a mapping with its type and message."""
        if isinstance(error, Mapping) and error.keys() == {"type", "message"}:
            kind, message = check_name("type", error["type"]), check_text("message", error["message"])
        elif isinstance(error, BaseException | str):
            kind = type(error).__name__ if isinstance(error, BaseException) else "error"
            message = plain_text(error)
        else:
            raise BadInput(f"error {shown(error)} is neither an exception nor text: give what went wrong")
        details = {"type": kind, "message": message}
        self.own_run.step(self.agent, FAILED, reason=message, error=details, **more)

    def _change(self, type: str, payload: Mapping[str, Any], **more: Any) -> Written:
        run = self.own_run
        _, copy, blobs = encode_payload(payload)
        values = _check_fields(copy)
        check_if_position(more.get("if_position"))
        if run.viewer != OWNER:
            referred = set(blobs_of(values)) - set(blobs)
            if referred and referred - set(blobs_of(dict(self.state))):
                raise BadInput(
                    "a blob that is not in this run's state is given as Blob(data), not by its digest"
                )
        type = check_name("the type of a change", type)
        change = Change(run.id, self.agent, run.viewer, type, values, blobs=blobs, **more)
        written: Written = run._submit("state.change", change)
        return written

    def __enter__(self) -> Self:
        self.own_run.step(self.agent, STARTED)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            try:
                self.finish()
            except CommonplaceError as refused:
                _beside(refused, partial(self.fail, refused))
                raise
        elif isinstance(error, Exception):
            _beside(error, partial(self.fail, error))


def _step(run: Run, node: str, status: str, more: Mapping[str, Any]) -> RunStep:
    """How far a node has come, checked. Raises BadInput."""
    own = ("run", "node", "status", "by")
    allowed = [name for name in RunStep.__struct_fields__ if name not in own]
    if unknown := more.keys() - {*allowed}:
        raise BadInput(f"a step has no {shown(min(unknown))}: its further fields are {', '.join(allowed)}")
    step = RunStep(
        run.id, check_name("a node", node), check_text("status", status), **{**more, "by": run.viewer}
    )
    return replace(
        step,
        attempt=check_whole("attempt", step.attempt),
        iteration=check_whole("iteration", step.iteration),
        reason=check_text("reason", step.reason),
        error=None if step.error is None else encode_payload(step.error)[1],
        result=encode_payload({} if step.result is None else step.result)[1],
        of=step.of and check_name("a node", step.of),
        done_by=step.done_by and check_actor(step.done_by),
        sources=_positions(step.sources),
    )


def _positions(sources: object) -> tuple[int, ...]:
    if not isinstance(sources, list | tuple) or any(type(position) is not int for position in sources):
        raise BadInput(f"sources {shown(sources)} is not a list of positions, such as (7, 9)")
    return tuple(sources)


def _is_plain(values: object) -> bool:
    """Whether this is a mapping of strings to strings."""
    return isinstance(values, Mapping) and all(
        isinstance(text, str) for text in (*values.keys(), *values.values())
    )


def _check_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values under names that can be told apart. Raises BadInput."""
    named = {check_name("a field", name): value for name, value in values.items()}
    if len(named) < len(values):
        raise BadInput("two of the fields have the same name, in two forms of Unicode: leave one of them out")
    return named


def _beside(error: BaseException, mark: Callable[[], None]) -> None:
    """Record that something failed; if that fails, too, the first error stays the one that is raised."""
    try:
        mark()
    except CommonplaceError as more:
        error.add_note(f"and it could not be recorded: {more}")


def plain_text(error: object) -> str:
    """What an error says, as text that can be recorded."""
    return str(error).encode("utf-8", "replace").decode()


def file_name(run: str) -> str:
    """A run's id as a file name that no other run has, and that cannot leave its folder."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "-" for char in run)[:80]
    return plain if plain == run else f"{plain}-{sha256(run.encode()).hexdigest()[:12]}"
