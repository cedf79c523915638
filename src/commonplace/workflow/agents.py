"""How an agent is run: a Python function (sync or async), `module:function`, or a command (JSON in, JSON out).

A failure inside is an `AgentFailed` with one of a few reasons, so that retries can tell a server that is busy from an
output that will never do.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from ..access.redact import NOTHING, SHORTEST_LINE, Redactor
from ..access.rights import check_actor
from ..errors import BadInput, CommonplaceError, Conflict, ContractViolation, Denied, NotFound, UnsafePath
from ..files.safe import Folder
from ..learn.board import dispatched
from ..run import Run, Turn, plain_text
from ..state.requests import Written
from .model import Agent, Retry, Workflow

AgentFunction = Callable[[Any], Any]
"""A function that does an agent's work. It is given an AgentTask, or what a delegation makes of one."""

Ask = Callable[[str, str], str | None]
"""Asks a person. Takes a prompt and the channel's name, and returns the answer, or None to end."""

REFUSALS = (BadInput, Conflict, ContractViolation, Denied, NotFound)
"""What the book says to an agent or a node that asks for something wrong."""

REASONS = ("timeout", "rate_limit", "server_error", "validation_error", "auth_error", "error")
MOST_OUTPUT = 16 * 1024 * 1024
TEXT = "text of the answer"
"""The field under which an answer stands that is text."""


class AgentFailed(Exception):
    """Raise it from an agent to say how it failed: `reason` is timeout, rate_limit, server_error,
    validation_error, auth_error or error."""

    def __init__(self, message: str, reason: str = "error", type: str = "") -> None:
        super().__init__(plain_text(message))
        self.reason = reason if reason in REASONS else "error"
        self.type = type or self.reason


class Interrupted(BaseException):
    """The runner was told to stop while an agent was at work. Not an agent's failure: it is run again."""


class AgentTask(Turn):
    """An agent's turn as a workflow gives it. Return the output from the agent's function: it is written
    together with the end of the turn. `item` is its part of a fan-out, `answer` what a person said in an
    interactive loop."""

    def __init__(
        self,
        run: Run,
        agent: str,
        *,
        attempt: int = 1,
        iteration: int = 0,
        inputs: Mapping[str, Any] | None = None,
        answer: str | None = None,
        hide: Redactor = NOTHING,
    ) -> None:
        # As the agent, not as the actor that runs the workflow.
        super().__init__(Run(run._session.acting_as(check_actor(agent)), run.id), agent)
        self._hide = hide
        self.attempt = attempt
        self.iteration = iteration
        self.inputs = dict(inputs or {})
        self.answer = answer
        self.timeout: float | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = threading.Event()
        self.interrupted = False

    def _change(self, type: str, payload: Mapping[str, Any], **more: Any) -> Written:
        return super()._change(type, self._hide(payload), **more)

    @property
    def item(self) -> Any:
        """This instance's item of a fan-out, or None."""
        return next(iter(self.inputs.values()), None)

    def request(self) -> dict[str, Any]:
        """What a command is given of the task, as JSON."""
        return {
            "run_id": self.own_run.id,
            "agent": self.agent,
            "attempt": self.attempt,
            "iteration": self.iteration,
            "inputs": self.inputs,
            "answer": self.answer,
            "state": self.state,
        }

    takes_text = False
    """Whether its function may answer with text."""

    @property
    def dispatch(self) -> str:
        """The name under which the board and the context digests are bound to this call."""
        return f"{self.agent}#{self.iteration}"

    def give_up(self, why: str) -> None:
        """End the turn from outside: what it writes from now on is refused."""
        self._session.refusal = self.own_run._session.refusal = why
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        self.interrupted = True
        self.give_up(f"the turn of {self.agent!r} is over: the runner was interrupted")
        self.ended.set()


def find_agent(
    agent: Agent, folder: Path, agents: Mapping[str, AgentFunction | str | list[str]]
) -> AgentFunction:
    """The function that does an agent's work, from `agents` or as its file says. Nothing is imported or started before
    it is called for."""
    chosen = agents.get(agent.id)
    if callable(chosen):
        return chosen
    runtime = agent.runtime
    name = chosen if isinstance(chosen, str) else runtime.get("callable") or runtime.get("entrypoint")
    command = chosen if isinstance(chosen, list) else runtime.get("command")
    if isinstance(name, str) and ":" in name:
        return imported(name, folder)
    if isinstance(command, str):
        command = [command]
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return as_command(command, folder, named_by_files=command is not chosen)
    raise BadInput(
        f"nobody says how to run the agent {agent.id!r}: give agents={{{agent.id!r}: function}}, or write "
        f"runtime.callable: module:function, or runtime.command: [program, argument], into its agent file"
    )


def imported(name: str, folder: Path) -> AgentFunction:
    """`module:function`, the module looked for in the workflow's folder first: there it is this workflow's own,
    also when another workflow has one of the same name."""
    module, _, path = name.partition(":")
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)  # for what the module itself imports
    try:
        function: Any = _from_file(module, folder.resolve()) or importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"{name!r} cannot be imported ({error}): write module:function") from error
    if not callable(function):
        raise BadInput(f"{name!r} is not a function")
    return function  # type: ignore[no-any-return]


def _from_file(module: str, folder: Path) -> ModuleType | None:
    name = f"{module.replace('.', '/')}.py"
    package = name.partition("/")[0]
    try:
        statuses = [Folder(folder).stat(path) for path in (package, name)]
    except UnsafePath as error:
        raise BadInput(f"{module} is not a module of this workflow: {error}") from error
    if any(status is not None and stat.S_ISLNK(status.st_mode) for status in statuses):
        raise BadInput(f"{module} is a link in the workflow's folder: put the module itself there")
    path = folder / name
    if not path.is_file():
        return None
    unique = f"commonplace_workflow_{sha256(str(path).encode()).hexdigest()[:16]}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[unique] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[unique])
        except BaseException:
            del sys.modules[unique]
            raise
    return sys.modules[unique]


def as_command(command: list[str], folder: Path, named_by_files: bool = False) -> AgentFunction:
    """A program that reads one JSON object and writes one: its output, or {"error": {"reason", "message"}}. One that
    the workflow's files name by a relative path must be a plain file in its folder."""

    def run(task: AgentTask) -> Any:
        if named_by_files:
            _check_program(command[0], folder)
        with subprocess.Popen(  # noqa: S603  the workflow's own command, never a shell
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            task.process = process
            out, err = process.communicate(json.dumps(task.request()).encode())
        return _answer_of(command[0], process.returncode, out, err)

    return run


def _check_program(program: str, folder: Path) -> None:
    """Raises AgentFailed for a relative path that leaves the workflow's folder or meets a link. A name without a path
    is looked for on the PATH, and an absolute one is what it says."""
    path = PurePosixPath(program)
    if len(path.parts) > 1 and not path.is_absolute():
        try:
            fd = Folder(folder.resolve()).open(path.as_posix())
        except UnsafePath as error:
            raise AgentFailed(f"{program} cannot be run: {error}", "validation_error") from error
        if fd is not None:
            os.close(fd)


def _answer_of(program: str, code: int, out: bytes, err: bytes) -> Any:
    if len(out) > MOST_OUTPUT:
        raise AgentFailed(
            f"{program} wrote {len(out):,} bytes, more than {MOST_OUTPUT:,}", "validation_error"
        )
    try:
        answer = json.loads(out) if out.strip() else {}
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        error = answer["error"]
        raise AgentFailed(str(error.get("message", "failed")), str(error.get("reason", "error")))
    if code != 0:
        text = err.decode(errors="replace").strip()[-500:]
        raise AgentFailed(f"{program} ended with exit code {code}: {text}", "server_error")
    if not isinstance(answer, dict):
        raise AgentFailed(f"{program} must write one JSON object to stdout", "validation_error")
    return answer


def call(function: AgentFunction, task: AgentTask, timeout: float) -> dict[str, Any]:
    """Run an agent and return its output. Raises AgentFailed for every failure.

    A function that takes too long cannot be stopped from outside: it is left behind, and what it answers
    late is not taken.
    """
    task.timeout = timeout

    def work() -> Any:
        with dispatched(task._session, task.dispatch, task._hide):
            answer = function(task)
            return asyncio.run(_awaited(answer, timeout)) if inspect.isawaitable(answer) else answer

    answers = _in_thread(work, task.ended, f"commonplace-agent-{task.agent}")
    task.ended.wait(timeout)
    if task.interrupted:
        raise Interrupted
    if not answers:
        task.give_up(f"the turn of {task.agent!r} is over: it took too long, and nobody waits for it")
        raise AgentFailed(f"{task.agent} took longer than {timeout:g} s", "timeout")
    output = answers[0]
    if isinstance(output, AgentFailed):
        raise output
    if task.takes_text and isinstance(output, str):
        return {TEXT: output}
    if output is not None and not isinstance(output, Mapping):
        raise AgentFailed(
            f"{task.agent} answered a {type(output).__name__}: an output is a dict of fields",
            "validation_error",
        )
    return dict(output or {})


def _in_thread(work: Callable[[], Any], ended: threading.Event, name: str) -> list[Any]:
    """Do the work in a thread. When `ended` is set, the list holds its answer, or an AgentFailed."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits for this one
            answers.append(as_failure(error))
        ended.set()

    threading.Thread(target=copy_context().run, args=(run,), daemon=True, name=name).start()
    return answers


async def _awaited(answer: Any, timeout: float) -> Any:
    return await asyncio.wait_for(answer, timeout)


def as_failure(error: BaseException) -> AgentFailed:
    """An error as a failure with one of the reasons."""
    if isinstance(error, AgentFailed):
        return error
    reason = "error"
    if isinstance(error, BadInput | Conflict | ContractViolation | NotFound):
        reason = "validation_error"
    elif isinstance(error, Denied):
        reason = "auth_error"
    elif isinstance(error, TimeoutError) and not isinstance(error, CommonplaceError):
        reason = "timeout"
    elif isinstance(error, ConnectionError):
        reason = "server_error"
    return AgentFailed(plain_text(error) or type(error).__name__, reason, type(error).__name__)


def secret_environment(workflow: Workflow) -> list[str]:
    """The values of the environment variables that the workflow calls sensitive."""
    security = workflow.document.get("security")
    listed = security.get("sensitive_env", ()) if isinstance(security, dict) else ()
    names = [listed] if isinstance(listed, str) else list(listed) if isinstance(listed, list | dict) else []
    names += _called_sensitive("", workflow.document.get("env"))
    values = [os.environ.get(name, "") for name in names if isinstance(name, str)]
    return [value for value in values if len(value) >= SHORTEST_LINE]  # a shorter one would match anything


def _called_sensitive(name: str, section: object) -> Iterator[object]:
    """The variables that say `sensitive: true`, by their own name or the one they stand under, at any depth of lists
    and sections."""
    if isinstance(section, list):
        for inner in section:
            yield from _called_sensitive(name, inner)
    elif isinstance(section, dict):
        if section.get("sensitive") is not None and not isinstance(section["sensitive"], dict | list):
            if section["sensitive"]:
                yield section.get("name", name)
            return
        for key, inner in section.items():
            yield from _called_sensitive(key, inner)


def wait_before(retry: Retry, attempt: int) -> float:
    """Seconds to wait after this many failed attempts."""
    if retry.backoff == "linear":
        return min(retry.base * attempt, retry.max)
    if retry.backoff == "exponential":
        return float(min(retry.base ** min(attempt, 64), retry.max))
    return 0.0


def answer_within(seconds: float, ask: Ask, prompt: str, channel: str) -> str | None:
    """What a person answers, unless they take too long."""
    ended = threading.Event()
    answers = _in_thread(partial(ask, prompt, channel), ended, "commonplace-ask")
    ended.wait(seconds)
    if not answers:
        raise AgentFailed(f"nobody answered within {seconds:g} s", "timeout")
    answer: str | AgentFailed | None = answers[0]
    if isinstance(answer, AgentFailed):
        raise answer
    return answer
