"""What a manager decides in an iteration, as plain data: delegate to workers, complete, or fail.

{"decision": "DELEGATE", "workers": [{"worker_id": "scout", "instructions": "Find the gate."}]}
{"decision": "COMPLETE", "result": {"answer": "the north gate", "confidence": 0.9}}
{"decision": "FAIL", "reason": "there is no gate"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from hashlib import sha256
from typing import Any, Literal

import msgspec

from ..errors import BadInput, shown

HOW_TO_ANSWER = (
    'answer with one JSON object: {"decision": "DELEGATE", "workers": [{"worker_id": "…", "instructions": "…"}]}, '
    '{"decision": "COMPLETE", "result": {…}} or {"decision": "FAIL", "reason": "…"}'
)


LONGEST_NAME = 60
_WORKER = re.compile(rf"(?=[^\W_])[\w .-]{{1,{LONGEST_NAME}}}")
KNOWN = (
    "worker_id", "worker", "instructions", "task", "inputs", "context", "output_contract", "timeout", "submanager",
    "type", "inherited_state_keys", "forbidden_inheritance_keys", "skills", "tools_allowed", "codemode",
    "temperature", "priority",
)  # fmt: skip
"""What an envelope may hold. Other fields are passed on to the worker as they are."""


class Assignment(msgspec.Struct, frozen=True):
    """What one worker is to do. `envelope` is all that the manager said of it."""

    name: str
    """Its name in the run: the worker, the iteration, and its place in it."""
    worker: str
    instructions: str
    inputs: dict[str, Any] = {}
    submanager: bool = False
    contract: dict[str, Any] | None = None
    timeout: float | None = None
    inherited_state_keys: tuple[str, ...] | None = None
    forbidden_inheritance_keys: tuple[str, ...] = ()
    envelope: dict[str, Any] = {}

    @property
    def signature(self) -> str:
        """What is the same whenever the same is asked of the same worker, about the same inputs."""
        words = " ".join(self.instructions.casefold().split())
        asked = [self.inputs, self.contract, self.submanager]
        return f"{self.worker}: {words} {json.dumps(asked, sort_keys=True, ensure_ascii=False)}"

    @property
    def address(self) -> str:
        """The beginning of the signature's hash."""
        return sha256(self.signature.encode()).hexdigest()[:16]


class ManagerDecision(msgspec.Struct, frozen=True):
    """What a manager decided. `result` is the answer of the whole task, or of its part."""

    action: Literal["delegate", "complete", "fail"]
    workers: tuple[Assignment, ...] = ()
    result: dict[str, Any] = {}
    reason: str = ""


_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.S)


def read_answer(answer: object) -> object:
    """A manager's answer: an object, or the text of one as a model gives it, perhaps in a fence. Raises BadInput."""
    if not isinstance(answer, str):
        return answer
    fenced = _FENCED.fullmatch(answer)
    try:
        return json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the manager's answer is not JSON ({error}): {HOW_TO_ANSWER}") from None


def decision_of(answer: object, iteration: int) -> ManagerDecision:
    """A manager's answer as a decision. Raises BadInput that says how to answer."""
    if not isinstance(answer, Mapping):
        raise BadInput(f"the manager answered {shown(answer)}: {HOW_TO_ANSWER}")
    listed = answer.get("workers", answer.get("delegations"))
    word = answer.get("decision")
    if word is None:
        word = "DELEGATE" if listed is not None else "COMPLETE" if "result" in answer else None
    action = word.strip().lower() if isinstance(word, str) else ""
    if action == "complete":
        result = answer.get("result", {})
        if not isinstance(result, Mapping):
            result = {"result": result}
        return ManagerDecision("complete", result=dict(result))
    if action == "fail":
        return ManagerDecision("fail", reason=str(answer.get("reason") or "the manager gave no reason"))
    if action not in ("delegate", "plan"):
        raise BadInput(f"the manager's decision is {shown(word)}: {HOW_TO_ANSWER}")
    if listed is None and action == "plan":
        listed = []
    if not isinstance(listed, list | tuple):
        raise BadInput(f"the manager's workers are {shown(listed)}, which is no list: {HOW_TO_ANSWER}")
    return ManagerDecision(
        "delegate", tuple(_assignment(each, iteration, place) for place, each in enumerate(listed, 1))
    )


def _assignment(envelope: object, iteration: int, place: int) -> Assignment:
    if not isinstance(envelope, Mapping):
        raise BadInput(f"workers[{place - 1}] is {shown(envelope)}, which is no object: {HOW_TO_ANSWER}")
    worker = envelope.get("worker_id", envelope.get("worker"))
    instructions = envelope.get("instructions", envelope.get("task"))
    worker = worker.strip() if isinstance(worker, str) else worker
    if not isinstance(worker, str) or not _WORKER.fullmatch(worker):
        raise BadInput(
            f"workers[{place - 1}].worker_id {shown(worker)} is no name of a worker: use up to {LONGEST_NAME} letters, "
            "digits, spaces and . _ -, beginning with a letter or digit"
        )
    unknown = sorted(str(name) for name in envelope if name not in KNOWN)
    if close := [(name, near[0]) for name in unknown if (near := get_close_matches(name, KNOWN, 1, 0.75))]:
        raise BadInput(f"workers[{place - 1}] has {close[0][0]!r}: did you mean {close[0][1]!r}?")
    if not isinstance(instructions, str) or not instructions.strip():
        raise BadInput(f"workers[{place - 1}].instructions is missing: say what {worker} is to do")
    inputs = envelope.get("inputs", envelope.get("context", {}))
    timeout = envelope.get("timeout")
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0
    ):
        raise BadInput(f"workers[{place - 1}].timeout {shown(timeout)} is not a number of seconds above 0")
    only = envelope.get("inherited_state_keys")
    return Assignment(
        name=f"{worker}#{iteration}.{place}",
        worker=worker,
        instructions=instructions.strip(),
        inputs=dict(inputs) if isinstance(inputs, Mapping) else {"context": inputs},
        submanager=envelope.get("submanager", envelope.get("type") in ("manager", "submanager")) is True,
        contract=_contract(envelope.get("output_contract"), place),
        timeout=timeout,
        inherited_state_keys=None if only is None else _names(only, "inherited_state_keys", place),
        forbidden_inheritance_keys=_names(
            envelope.get("forbidden_inheritance_keys", ()), "forbidden_inheritance_keys", place
        ),
        envelope=dict(envelope),
    )


def _names(value: object, field: str, place: int) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise BadInput(f"workers[{place - 1}].{field} {shown(value)} is not a list of names")
    return tuple(value)


def _contract(contract: object, place: int) -> dict[str, Any] | None:
    """The contract that a manager sets, as a JSON Schema."""
    if contract is None:
        return None
    if not isinstance(contract, Mapping):
        raise BadInput(
            f"workers[{place - 1}].output_contract {shown(contract)} is no object: name required_fields, or write a "
            "JSON Schema"
        )
    schema = {name: value for name, value in contract.items() if name != "required_fields"}
    required = contract.get("required_fields", contract.get("required", ()))
    return {**schema, "type": "object", "required": list(_names(required, "output_contract", place))}
