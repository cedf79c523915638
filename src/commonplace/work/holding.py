"""A claim: a task in the hands of one agent, and what its holder does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import BadInput, Conflict, Fenced
from ..ledger.checks import check_name
from ..verbs import verb
from .artifacts import Made, made
from .checks import checked_text, listed, names, required_text, seconds, texts
from .claims import run_out
from .graph import new_task
from .people import waiting
from .reading import lease_name
from .records import Artifact, Decision, Discovery, Nudge
from .tasks import Task, TaskResult

if TYPE_CHECKING:
    from .contexts import Context
    from .radar import Overlap
    from .verbs import Work


ARTIFACT_FIELDS = ("path", "type", "description", "content", "store", "commit", "branch")


def _recorded(item: object) -> str:
    """The id of an artifact that was recorded before; "" of one that is new. A mapping may hold it alone."""
    if isinstance(item, Artifact):
        return item.id
    return check_name("id", item["id"]) if isinstance(item, Mapping) and item.keys() == {"id"} else ""


def _made(item: Any, read: bool) -> Made:
    """What a path, or a mapping with the fields of an artifact, says was made. Raises BadInput."""
    if not isinstance(item, Mapping):
        return made(item, read=read)
    stray = sorted(set(map(str, item)) - set(ARTIFACT_FIELDS))
    if stray or "path" not in item:
        wrong = f"has no {stray[0]!r}" if stray else "needs a path"
        raise BadInput(f"an artifact {wrong}: its fields are {', '.join(ARTIFACT_FIELDS)}")
    return made(**item, read=read)


class Claim:
    """A task that is an agent's own for as long as its lease lasts.

    With `with`, an exception fails the task, and a task that was neither completed nor failed is released, also when
    somebody interrupts it (Ctrl-C).
    """

    def __init__(self, work: Work, agent: str, task: Task) -> None:
        self.work, self.agent, self.task, self._session = work, agent, task, work._session
        assert task.token is not None
        self.token: int = task.token
        self.lease = task.lease
        self.urgent: list[Nudge] = []
        """What heartbeats have brought that a worker made for the agent, until it looks at its nudges."""
        self._done = False

    def _ask(self, command: str, **fields: Any) -> Any:
        return self.work._do(command, self.agent, task=self.task.number, token=self.token, **fields)

    def _do(self, command: str, **fields: Any) -> Task:
        return self._becomes(self._ask(command, **fields))

    def _becomes(self, task: Task) -> Task:
        self.task, self._done = task, task.status != "in_progress" or task.token != self.token
        return task

    @verb(repeatable=True)
    def heartbeat(self, lease: float | None = None) -> list[Nudge]:
        """Say that the agent is still there: the task is its own for another lease. Answers the nudges that are to be
        told at once, each once. Raises Fenced if its lease has run out or the task went on without it, Conflict if the
        work was given up."""
        length = self.lease if lease is None else seconds("lease", lease)
        store = self.work._ledger.store
        self.work._session.check_may_act("claim.heartbeat")
        with self.work._reading(None) as (reading, _):
            task, info = reading.task(self.task.id), reading.info
            urgent = waiting(reading, self.agent, False, "beat")
            in_force = reading.leases([task])
        if not info.open:
            raise Conflict(f"the work {info.name!r} is {info.status}: there is no use in going on")
        if task.token != self.token or task.status != "in_progress":
            raise Fenced(
                f"{self.agent!r} lost task {self.task.id!r}, which is {task.status} now: its claim {self.token} is no "
                "longer in force"
            )
        if not in_force:
            raise Fenced(run_out(task))
        # A lease that ends between that look and this line is renewed as if it had not. If somebody has the task by
        # then, it is under another fence: what is renewed is nothing but what is lost anyway.
        held = store.lease(lease_name(task), self.agent, length, self.token)
        if held.fence != self.token or held.holder != self.agent:
            raise Fenced(f"{self.agent!r} lost task {self.task.id!r} to {held.holder!r}")
        ids = tuple(row["id"] for row in urgent)
        return self.work._told(self.agent, (self.task.id,), "beat", ids) if ids else []

    @verb(repeatable=True)
    def complete(
        self,
        summary: str = "",
        *,
        next_steps: Sequence[str] = (),
        learnings: Sequence[str] = (),
        artifacts: Sequence[str | Path | Mapping[str, Any] | Artifact] = (),
        _read: bool = True,
    ) -> Task:
        """The task is done: it is completed, or waits for a review if it needs one. Paths among the `artifacts`, or
        mappings with the fields of `artifact`, are recorded as `artifact` does it. The same call again answers as the
        first time.

        `artifacts` is what was made: paths of files."""
        self._complete(None, summary, next_steps, learnings, artifacts, None, _read)
        return self.task

    @verb(repeatable=True)
    def next(
        self,
        summary: str = "",
        *,
        next_steps: Sequence[str] = (),
        learnings: Sequence[str] = (),
        artifacts: Sequence[str | Path | Mapping[str, Any] | Artifact] = (),
        _event: str | None = None,
        _read: bool = True,
    ) -> Claim | None:
        """Complete the task and claim the next one, in one commit: half the waiting where tasks are small. Answers None
        when nothing is ready or the work is paused, and when the same call is made again; the task is completed all the
        same.

        `artifacts` is what was made: paths of files."""
        following = self._complete(self.lease, summary, next_steps, learnings, artifacts, _event, _read)
        return None if following is None else Claim(self.work, self.agent, following)

    def _complete(
        self,
        then: float | None,
        summary: str,
        next_steps: Sequence[str],
        learnings: Sequence[str],
        artifacts: Sequence[str | Path | Mapping[str, Any] | Artifact],
        event: str | None = None,
        read: bool = True,
    ) -> Task | None:
        each = listed("artifacts", artifacts)
        recorded = [id for item in each if (id := _recorded(item))]
        new = tuple(_made(item, read) for item in each if not _recorded(item))
        result = TaskResult(
            checked_text("summary", summary), texts("next_steps", next_steps), texts("learnings", learnings),
            tuple(recorded),
        )  # fmt: skip
        following: Task | None
        done, following = self._ask("complete", result=result, made=new, then=then, event=event)
        self._becomes(done)
        return following

    @verb(repeatable=True)
    def fail(self, reason: str) -> Task:
        """The task has failed; its policy says what happens next. The same call again answers without another
        failure."""
        return self._do("fail", reason=required_text("reason", reason))

    @verb
    def release(self, reason: str = "") -> Task:
        """Give the task back, for those it was for."""
        return self._do("release", reason=checked_text("reason", reason))

    @verb
    def block(self, reason: str = "", *, on: Sequence[str | Task] = ()) -> Task:
        """The task cannot go on: until somebody clears the reason, or until other tasks are done.

        `on` are the ids of the tasks to wait for."""
        why = checked_text("reason", reason)
        return self._do("block_or_split", reason=why, on=names("on", on), subtasks=())

    @verb
    def split(self, subtasks: Sequence[str | Mapping[str, Any]]) -> Task:
        """Split the task: it waits until these are done, and can then be claimed again to bring them together. They are
        for the same role as the task, unless they name one (`for_role`). Who may not orchestrate gives them no agent,
        no other role, no tasks that they block, no failure that aborts the work and no higher priority than the task's
        own.

        `subtasks` are titles, or tasks with the fields of add_task."""
        fields = [{"title": part} if isinstance(part, str) else part for part in listed("subtasks", subtasks)]
        return self._do("block_or_split", reason="", on=(), subtasks=tuple(new_task(part) for part in fields))

    @verb
    def nudges(self) -> list[Nudge]:
        """What the agent is to be told in this turn, with what came in by heartbeats that a worker made for it."""
        urgent, self.urgent = self.urgent, []
        return [*urgent, *self.work.read_messages(self.agent)]

    @verb
    def context(
        self, *, max_chars: int | None = 6_000, max_tokens: int | None = None, receipt: bool = True
    ) -> Context:
        """What it needs to know, with the nudges that it is told by this, and a receipt. With `receipt=False` nothing
        is written: then the nudges wait on.

        `receipt` is whether a receipt is written."""
        from .contexts import context_of

        return context_of(self.work, self.task.id, max_chars, max_tokens, None, self.agent, receipt)

    @verb
    def radar(self) -> list[Overlap]:
        """What may make the task needless."""
        from .radar import overlaps

        return overlaps(self.work, self.task.id, self.agent)

    @verb
    def decide(self, **fields: Any) -> Decision:
        """As `Work.decide`, about this task, as long as it is held."""
        return self.work.decide(**{**self._held, **fields})

    @verb
    def discover(self, text: str, **fields: Any) -> Discovery:
        """As `Work.discover`, about this task, as long as it is held.

        `text` is what was learned."""
        return self.work.discover(text, **{**self._held, **fields})

    @verb
    def artifact(self, path: str | Path, *, _read: bool = True, **fields: Any) -> Artifact:
        """As `Work.artifact`, for this task, as long as it is held.

        `path` is where it lies."""
        return self.work.artifact(path, _read=_read, **{**self._held, **fields})

    @property
    def _held(self) -> dict[str, Any]:
        """Who says something, and of which task, for as long as the claim is in force."""
        return {"task": self.task, "by": self.agent, "_token": self.token}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if self._done:
            return
        try:
            if error is None:
                self.release()
            elif isinstance(error, Exception):
                self.fail(f"{type(error).__name__}: {error}")
            else:  # its holder was interrupted
                self.release(type(error).__name__)
        except (Fenced, Conflict):
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Claim {self.token} of {self.task.title!r} by {self.agent!r}>"
