"""How an agent is run: a Python function (sync or async), `module:function`, or a command (JSON in, JSON out).

Whatever goes wrong inside is an `AgentFailed` with a reason in one of a few words, so that retries can tell a
server that is busy from an output that will never do.
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
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from ..access.redact import NOTHING, SHORTEST_LINE, Redactor
from ..access.rights import check_actor
from ..errors import BadInput, CommonplaceError, Conflict, ContractViolation, Denied, NotFound, UnsafePath
from ..files.safe import Folder
from ..run import Run, Turn, plain_text
from ..state.requests import Written
from .model import Agent, Workflow

AgentFunction = Callable[["AgentTask"], Any]

Ask = Callable[[str, str], str | None]
"""Asks a person: given a prompt and the channel's name, answers what they said, or None to end."""

REASONS = ("timeout", "rate_limit", "server_error", "validation_error", "auth_error", "error")
MOST_OUTPUT = 16 * 1024 * 1024


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
        # As the agent, not as whoever runs it.
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

    def give_up(self, why: str) -> None:
        """Nobody waits for this turn any more: what it writes from now on is refused."""
        self._session.refusal = self.own_run._session.refusal = why
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        self.interrupted = True
        self.give_up(f"the turn of {self.agent!r} is over: the runner was interrupted")
        self.ended.set()


def find_agent(
    agent: Agent, folder: Path, given: Mapping[str, AgentFunction | str | list[str]]
) -> AgentFunction:
    """The function that does an agent's work. Nothing is imported or started before it is called for."""
    known = given.get(agent.id)
    if callable(known):
        return known
    runtime = agent.runtime
    named = known if isinstance(known, str) else runtime.get("callable") or runtime.get("entrypoint")
    command = known if isinstance(known, list) else runtime.get("command")
    if isinstance(named, str) and ":" in named:
        return imported(named, folder)
    if isinstance(command, str):
        command = [command]
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return as_command(command, folder, named_by_files=command is not known)
    raise BadInput(
        f"nobody says how to run the agent {agent.id!r}: give agents={{{agent.id!r}: function}}, or write "
        f"runtime.callable: module:function, or runtime.command: [program, argument], into its agent file"
    )


def imported(named: str, folder: Path) -> AgentFunction:
    """`module:function`, the module looked for in the workflow's folder first: there it is this workflow's own,
    also when another workflow has one of the same name."""
    module, _, name = named.partition(":")
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)  # for what the module itself imports
    try:
        found: Any = _from_file(module, folder.resolve()) or importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"{named!r} cannot be imported ({error}): write module:function") from error
    if not callable(found):
        raise BadInput(f"{named!r} is not a function")
    function: AgentFunction = found
    return function


def _from_file(module: str, folder: Path) -> ModuleType | None:
    name = f"{module.replace('.', '/')}.py"
    package = name.partition("/")[0]
    try:
        there = [Folder(folder).stat(one) for one in (package, name)]
    except UnsafePath as error:
        raise BadInput(f"{module} is not a module of this workflow: {error}") from error
    if any(one is not None and stat.S_ISLNK(one.st_mode) for one in there):
        raise BadInput(f"{module} is a link in the workflow's folder: put the module itself there")
    path = folder / name
    if not path.is_file():
        return None
    unique = f"commonplace_workflow_{sha256(str(path).encode()).hexdigest()[:16]}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, path)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[unique] = made
        try:
            spec.loader.exec_module(made)
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
        given = {
            "run_id": task.own_run.id,
            "agent": task.agent,
            "attempt": task.attempt,
            "iteration": task.iteration,
            "inputs": task.inputs,
            "answer": task.answer,
            "state": task.state,
        }
        with subprocess.Popen(  # noqa: S603  the workflow's own command, never a shell
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            task.process = process
            out, err = process.communicate(json.dumps(given).encode())
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
        told = answer["error"]
        raise AgentFailed(str(told.get("message", "failed")), str(told.get("reason", "error")))
    if code != 0:
        said = err.decode(errors="replace").strip()[-500:]
        raise AgentFailed(f"{program} ended with exit code {code}: {said}", "server_error")
    if not isinstance(answer, dict):
        raise AgentFailed(f"{program} must write one JSON object to stdout", "validation_error")
    return answer


def call(function: AgentFunction, task: AgentTask, timeout: float) -> dict[str, Any]:
    """Run an agent and answer its output. Raises AgentFailed, whatever happened in there.

    A function that takes too long cannot be stopped from outside: it is left behind, and what it answers
    late is not taken.
    """
    task.timeout = timeout
    said: list[Any] = []

    def work() -> None:
        try:
            answer = function(task)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer, timeout))
            said.append(answer)
        except BaseException as error:  # noqa: BLE001  handed to whoever waits for this thread
            said.append(as_failure(error))
        task.ended.set()

    threading.Thread(target=work, daemon=True, name=f"commonplace-agent-{task.agent}").start()
    task.ended.wait(timeout)
    if task.interrupted:
        raise Interrupted
    if not said:
        task.give_up(f"the turn of {task.agent!r} is over: it took too long, and nobody waits for it")
        raise AgentFailed(f"{task.agent} took longer than {timeout:g} s", "timeout")
    if isinstance(said[0], AgentFailed):
        raise said[0]
    if said[0] is not None and not isinstance(said[0], Mapping):
        raise AgentFailed(
            f"{task.agent} answered a {type(said[0]).__name__}: an output is a dict of fields",
            "validation_error",
        )
    return dict(said[0] or {})


async def _awaited(answer: Any, timeout: float) -> Any:
    return await asyncio.wait_for(answer, timeout)


def as_failure(error: BaseException) -> AgentFailed:
    """What happened, in one of a few words."""
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
    said = security.get("sensitive_env", ()) if isinstance(security, dict) else ()
    names = [said] if isinstance(said, str) else list(said) if isinstance(said, list | tuple | dict) else []
    names += _called_sensitive("", workflow.document.get("env"))
    found = [os.environ.get(name, "") for name in names if isinstance(name, str)]
    return [one for one in found if len(one) >= SHORTEST_LINE]  # a shorter one would stand in anything


def _called_sensitive(name: str, about: object) -> Iterator[object]:
    """The variables that say `sensitive: true`, by their own name or the one they stand under, in whatever lists and
    sections they stand."""
    if isinstance(about, list):
        for one in about:
            yield from _called_sensitive(name, one)
    elif isinstance(about, dict):
        if about.get("sensitive") is not None and not isinstance(about["sensitive"], dict | list):
            if about["sensitive"]:
                yield about.get("name", name)
            return
        for inner, one in about.items():
            yield from _called_sensitive(inner, one)


def answer_within(seconds: float, ask: Ask, prompt: str, channel: str) -> str | None:
    """What a person answers, unless they take too long."""
    said: list[str | AgentFailed | None] = []

    def work() -> None:
        try:
            said.append(ask(prompt, channel))
        except Exception as error:  # noqa: BLE001  handed to whoever waits for this thread
            said.append(as_failure(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not said:
        raise AgentFailed(f"nobody answered within {seconds:g} s", "timeout")
    if isinstance(said[0], AgentFailed):
        raise said[0]
    return said[0]
