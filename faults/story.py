"""A random story told to a book, and the judge who knows afterwards what the book must hold.

The story keeps a log of plain data: what it tries before it tries it, what the book answered after. Whatever
then happens to the book (a kill, a power cut, a full disk), the log decides what is owed: everything that
was acknowledged, nothing that was refused, and of what was under way all or nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any

from commonplace import Blob, Book, Busy, CommonplaceError, EngineUnavailable, OutcomeUnknown
from commonplace.documents.writing import ArchiveDocuments
from commonplace.learn import ContextDigest
from commonplace.learn.delegations import Digested, RecordPlan
from commonplace.memory.requests import Patch, Shown
from commonplace.recall.verification import Checked, RecordChecks
from commonplace.state.policy import AgentPolicy, Policy
from commonplace.state.requests import Open

Entry = tuple[str, Any]
BLOBS = [f"blob {n} ".encode() * 100 * n for n in range(1, 5)]
OURS = (
    "event",
    "fault",
    "access",
    "delegation",
    "state",
    "run",
    "memory",
    "premise",
    "receipt",
    "scope",
    "task",
    "thread",
    "work",
)
"""First words of kinds that the story does not keep account of."""
STEPS = ("record", "batch", "blob", "child", "again", "erase", "rebuild", "purge")
WEIGHTS = (50, 14, 10, 8, 6, 8, 2, 2)


class Story:
    """`tell(book)` does one random thing. Raises what the book raises, after noting what that means."""

    def __init__(self, rng: random.Random, tag: str, log: Callable[[Entry], None], size: int = 2000) -> None:
        self.rng = rng
        self.tag = tag
        self.log = log
        self.size = size
        self.count = 0
        self.known: dict[str, dict[str, Any]] = {}
        self.parents: dict[str, str] = {}

    def tell(self, book: Book, step: str = "") -> str:
        step = step or self.rng.choices(STEPS, WEIGHTS)[0]
        if step in ("child", "again", "erase") and not self.known:
            step = "record"
        if step == "purge":
            book.purge()
        elif step == "rebuild":
            with suppress(Busy):  # whoever died while rebuilding keeps the lease until it runs out
                book.rebuild()
        elif step == "erase":
            self._erase(book, self.rng.choice(list(self.known)))
        elif step == "again":
            id = self.rng.choice(list(self.known))
            self._record(book, [self.known[id]])
        else:
            count = self.rng.randint(2, 4) if step == "batch" else 1
            self._record(book, [self._fields(step) for _ in range(count)])
        return step

    def _fields(self, step: str) -> dict[str, Any]:
        self.count += 1
        fields: dict[str, Any] = {
            "id": f"{self.tag}-{self.count}",
            "kind": self.rng.choice(("agent.spoke", "world.changed", "tool.ran")),
            "actor": self.rng.choice(("ada", "ben", "çem")),
            "run_id": self.rng.choice(("run-1", "run-2", "run%", None)),
            "payload": {"text": self.rng.randbytes(self.rng.randint(1, self.size) // 2).hex()},
        }
        if step == "blob":
            fields["payload"]["file"] = Blob(self.rng.choice(BLOBS))
        if step == "child":
            fields["parents"] = [self.rng.choice(list(self.known))]
        return fields

    def _record(self, book: Book, batch: list[dict[str, Any]]) -> None:
        ids = [fields["id"] for fields in batch]
        new = [id for id in ids if id not in self.known]
        self.log(("try", new))
        try:
            events = book.record_all(batch)
        except OutcomeUnknown:
            raise
        except (EngineUnavailable, Busy):
            self.log(("refused", new))
            raise
        for fields in batch:
            self.known[fields["id"]] = fields
            for parent in fields.get("parents", ()):
                self.parents[fields["id"]] = parent
        self.log(("recorded", [(event.id, event.payload, event.position) for event in events]))

    def _erase(self, book: Book, id: str) -> None:
        ids = [id]
        for child, parent in self.parents.items():  # parents are recorded before their children
            if parent in ids:
                ids.append(child)
        self.log(("try-erase", ids))
        for gone in ids:
            self.known.pop(gone, None)
        try:
            erasure = book.erase(id)
        except OutcomeUnknown:
            raise
        except (EngineUnavailable, Busy):
            self.log(("kept", ids))
            raise
        self.log(("erased", [*erasure.erased, *erasure.already]))


def use_everything(book: Book) -> None:
    """Touch every view that is not the ledger's own: rights, labels, and the state of runs of two models."""
    book.access.grant("ada", role="qa", may_emit=["*"])
    event = book.record("fault.noted", actor="ada", id="labelled", labels={"sensitivity": "private"})
    book.access.relabel(event.id, sensitivity="sensitive", reason="to be careful")
    book.access.tokens.create("ada", label="laptop")
    for model in ("shared_dict", "cqrs"):
        agents = {"ada": AgentPolicy(may_emit=("*",)), "ben": AgentPolicy()}
        policy = Policy(model=model, sensitive_fields=("key",), agents=agents)
        opening = Open(f"state-{model}", "owner", policy, initial={"topic": "x", "key": "abcdef"})
        book.ledger.submit("state.open", opening)
        run = book.run(run_id=opening.run)
        with run.agent("ada") as me:
            me.write({"n": 1})
            me.emit("increment", {"n": 2})
        fork = run.fork()
        fork.agent("ben").finish({"n": 3})
        fork.merge()
        run.catch_up()
    remember_everything(book)


def remember_everything(book: Book) -> None:
    """Touch every view of durable memory."""
    book.memory.configure(retention_days=7)
    book.memory.set_core("tools", name="Tools")
    ada = book.as_actor("ada")
    kept = ada.remember("The lift stops at the fourth floor.", tags=["house"], shared=True, pinned=True)
    ada.remember("The lift stops at the fourth floor.", run_id="again")
    ada.remember(key="floors", value=4)
    ada.remember(key="floors", value=5)
    ada.memory.revise(str(kept.item_id), text="The lift stops at the fifth floor.")
    book.ledger.submit("memory.patch", Patch("ada", str(kept.item_id), {"title": "lift"}, key="an edit"))
    gone = ada.remember("This will be forgotten soon, by everybody who reads it.")
    ada.forget(str(gone.item_id), confirm="FORGET", erase=True)
    book.ledger.submit("memory.shown", (Shown("ada", "r", (str(kept.item_id),)),))
    ada.documents.log("a long day")
    ada.memory.link(str(kept.item_id), "related", str(ada.remember("The stairs are steep.").item_id))
    book.ledger.submit("documents.archive", ArchiveDocuments("owner", "day", ("2020-01-01",)))
    ada.documents.add_to_session("the lift", "it stops")
    ada.documents.record_gate("the lift", "PLAN", "GO")
    ada.learn.verify_item("the lift", "it stops", evidence="seen")
    ada.learn.phase_end("the lift", 1, report="it stops on every floor")
    book.as_actor("ada", scope="users/alice").remember("Alice takes the stairs.")
    book.as_actor("ada", scope="users/gone").remember("Nobody knows whose this is.")
    book.erase(
        next(event.id for event in book.events(kinds=["scope.named"]) if "gone" in event.payload["path"])
    )
    recall_everything(book)


def recall_everything(book: Book) -> None:
    """Touch every view of recall."""
    ben = book.as_actor("ben")
    kept = book.remember("The lift is painted green, on all floors.", shared=True)
    book.ledger.submit("recall.checked", RecordChecks("owner", None, (Checked(str(kept.item_id), "abc"),)))
    ben.digest("the green lift", stable="a task")
    book.forget(str(kept.item_id), confirm="FORGET")
    ben.prompt("go on")
    ben.digest("the lift", ignore_memory=True)
    work_everything(book)


def work_everything(book: Book) -> None:
    """Touch every view of working memory."""
    work = book.work(name="the lift", goal="it stops at every floor")
    first = work.add_task("measure the shaft", needs_review=True)
    second = work.add_task("order the cable", depends_on=[first.id], priority=2)
    work.nudge("mind the gap", target="ada")
    with work.lead("chief") as lead:
        claim = work.claim("ada")
        assert claim is not None
        (nudge,) = claim.nudges()
        claim.artifact("plans/shaft.txt", content="4 m")
        claim.decide(
            question="how deep?", choice="4 m", alternatives=["3 m"], rationale="the drawings say so"
        )
        claim.discover("the shaft is damp", type="risk", affects=[second.id])
        claim.complete("measured")
        work.review(first.id, "approved", by="ben")
        step = lead.next()
        assert step is not None
        lead.handled(step)
    late = work.claim("ada")
    assert late is not None
    work.nudge("again", target="ada")
    late.nudges()
    work.acknowledge(nudge, "ada")
    work.approvals.request("order it", risk="it costs a lot")
    work.escalate("the cable is late", by="ada")
    work.reject(work.candidates()[0], reason="not worth it")
    talk_of_everything(book)


def talk_of_everything(book: Book) -> None:
    """Touch every view of conversations."""
    thread = book.as_actor("ada").thread("the lift")
    thread.add(
        [{"role": "system", "content": "You operate a lift."},
         {"role": "user", "content": "Does it stop on the fourth floor?", "id": "m1"},
         {"role": "assistant", "content": "It stops on the fifth."}]
    )  # fmt: skip
    thread.summary(lambda _prompt: "Where the lift stops.")
    thread.learn(lambda _prompt: '{"proposals": []}')
    thread.context("the fourth floor")
    book.as_actor("ada").learn.compact(thread="the lift")
    delegate_everything(book)
    learn_everything(book)


def delegate_everything(book: Book) -> None:
    """Touch every view of delegations."""
    run = book.run(run_id="delegated")
    turn = run.agent("ada")
    turn.learn.board.post("lift", {"floor": 4})
    turn.learn.register_tool("lift.call", {"button": "up"})
    book.ledger.submit("delegations.plan", RecordPlan(run.id, 1, "ada", {"decision": "COMPLETE"}))
    book.ledger.submit("delegations.digest", Digested(run.id, ContextDigest(goal="up", run_id=run.id)))


def learn_everything(book: Book) -> None:
    """Touch every view of learning."""
    book.memory.curate(
        model=lambda _prompt: '{"facts": [{"text": "Days are long in the house.", "lines": [1]}]}'
    )
    with book.run(run_id="learning") as run, run.agent("ada") as me:
        me.record("fault.noted", payload={"text": "The lift has stopped."})
        me.learn.reflect(private=True, force=True)


class Truth:
    """What a log says a book must hold."""

    def __init__(self, log: Iterable[Entry]) -> None:
        self.recorded: dict[str, dict[str, Any]] = {}
        self.tried: list[list[str]] = []
        self.refused: set[str] = set()
        self.erased: set[str] = set()
        self.doubtful: set[str] = set()
        for what, about in log:
            if what == "try":
                self.tried.append(about)
            elif what == "recorded":
                self.recorded |= {id: payload for id, payload, _ in about}
            elif what == "refused":
                self.refused |= set(about)
            elif what == "try-erase":
                self.doubtful |= set(about)
            elif what == "kept":
                self.doubtful -= set(about)
            elif what == "erased":
                self.erased |= set(about)

    def judge(self, book: Book) -> list[str]:
        """What is wrong with the book; nothing is the only good answer."""
        wrong: list[str] = []
        events = {event.id: event for event in book.events()}
        checked = book.verify()
        if not checked.ok or checked.head != len(events):
            wrong.append(f"verify: {checked.problem or 'ids stand twice'} ({checked.first_bad})")
        for id, payload in self.recorded.items():
            if id not in events:
                wrong.append(f"{id} was acknowledged and is lost")
            elif events[id].erased:
                if id not in self.doubtful:
                    wrong.append(f"{id} is erased and nobody asked for it")
            elif id in self.erased:
                wrong.append(f"{id} was erased and is back")
            elif events[id].payload != payload or book.event(id) != events[id]:
                wrong.append(f"{id} has another payload than was acknowledged")
            elif "file" in payload:
                wrong += _blob_problem(book, id, payload["file"]["$blob"])
        for ids in self.tried:
            if len({id in events for id in ids}) > 1:
                wrong.append(f"of the batch {ids} only a part is there")
        wrong += [f"{id} was refused and is there" for id in sorted(self.refused & set(events))]
        told = {id for ids in self.tried for id in ids} | set(self.recorded)
        wrong += [
            f"nobody sent {id}"
            for id in events
            if id not in told
            and events[id].kind.partition(".")[0] not in OURS
            and events[id].kind != "agent.reflected"  # the book writes it for an agent
        ]
        runs = {run.id: run.first for run in book.runs.list()}
        first: dict[str, int] = {}
        for event in events.values():
            if event.run_id is not None:
                first.setdefault(event.run_id, event.position)
        if runs != first:
            wrong.append(f"runs() says {runs} and the events say {first}")
        return wrong


def _blob_problem(book: Book, id: str, digest: str) -> list[str]:
    try:
        found = sha256(book.blob(digest)).hexdigest() == digest
    except CommonplaceError as error:
        return [f"the blob of {id} cannot be had: {error!r}"]
    return [] if found else [f"the blob of {id} is another"]


def judge_again(book: Book, log: Iterable[Entry]) -> list[str]:
    """Judge a book, and whether it still takes writes."""
    try:
        wrong = Truth(log).judge(book)
        after = book.record("fault.survived", payload={"after": "the fault"})
        if book.event(after.id).position != book.head or not book.verify().ok:
            wrong.append("what is written after the fault does not hold")
    except CommonplaceError as error:
        return [f"the book cannot be used after the fault: {error!r}"]
    return wrong
