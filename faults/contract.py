"""The HTTP API beside its own OpenAPI document: requests that schemathesis makes from it, to a server on loopback."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import commonplace
from commonplace import Book
from commonplace.surfaces.http.openapi import document

from . import Result, fault
from .servers import ServeProcess

LEFT_OUT = {
    "positive_data_acceptance": "a schema does not say which ids there are, or which moves a task may make",
    "ensure_resource_availability": "verbs are no resources with a life cycle, and the document has no links",
    "use_after_free": "the same",
    "object_level_authorization": "the same; who may reach what is shown by `revocations`, `worlds` and `tenants`",
    "ignored_auth": "every route is tried with every kind of wrong token by tests/test_http.py",
    "max_response_time": "speed is measured by benchmarks",
}
"""The checks of schemathesis that are switched off, and why."""

UNTRIED = ("/v1/watch", "/v1/work/watch", "/mcp")
"""Streams, and a protocol of its own: other faults and tests are about them."""


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Book, dict[str, Any]]]:
    """A book with something of everything, and its ids by the names of the parameters that take them."""
    with commonplace.open(folder / "contract.db") as book:
        item = book.remember("The lift stops at the fourth floor", tags=["lift"], shared=True)
        other = book.remember("The stairs are steep", shared=True)
        work = book.work(name="The lift", id="lift", goal="It goes up")
        task = work.add_task("Measure the shaft", id="measure")
        work.add_task("Order a motor", id="motor", depends_on=[task])
        claim = work.claim("ada")
        assert claim is not None
        digest = book.digest("where does the lift stop")
        with book.run(run_id="r1", initial={"topic": "lifts"}) as run, run.agent("ada") as turn:
            turn.write({"floors": 4})
        book.run(run_id="r2")
        book.thread("support").add([{"role": "user", "content": "The lift is stuck"}])
        yield (
            book,
            {
                "id": item.item_id, "to": other.item_id, "start": item.item_id, "work": work.id, "task": "measure",
                "token": claim.token, "run_id": "r1", "a": "r1", "b": "r2", "fork": "r2", "thread": "support",
                "agent": "ada", "actor": "ada", "query": "where does the lift stop", "text": "The door is green",
                "receipt": digest.receipt_id, "at": book.head, "key": "lift.floor", "after": 0, "scope": None,
                "payload": {"text": "hello"}, "kind": "agent.spoke", "day": "2026-01-31", "depends_on": ["measure"],
            },
        )  # fmt: skip


def with_known(given: Any, known: dict[str, Any], rng: random.Random) -> Any:
    """Arguments in which some names stand for what there is, so that calls reach further than to a 404."""
    if not isinstance(given, dict):
        return given
    return {
        name: known[name] if name in known and rng.random() < 0.7 else value for name, value in given.items()
    }


@fault(15, "contract", 20_000, 550)
def fault_15_contract(count: int, seed: int, tmp: Path) -> Result:
    """`count` requests that follow the OpenAPI document, or break it in one place, spread over all of its operations.
    Whatever is answered must be what the document says, and never that the server failed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what schemathesis imports
        import schemathesis
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import seed as seeded
        from hypothesis.errors import Unsatisfiable
        from schemathesis.checks import CHECKS, load_all_checks

        load_all_checks()
        checks = [CHECKS.get_one(name) for name in CHECKS.get_all_names() if name not in LEFT_OUT]
        schema = schemathesis.openapi.from_dict(document())
        found: list[Any] = list(schema.get_all_operations())  # each is an operation, or why it is none
        operations = [operation for each in found if (operation := each.ok()).path not in UNTRIED]
        modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
        result = Result()
        each_many, more = divmod(count, len(operations))
        with (
            opened(tmp) as (book, known),
            ServeProcess(str(tmp / "contract.db"), tmp, "--limits", "rate=1000000") as server,
        ):
            ada = book.access.tokens.create("ada").secret
            for number, operation in enumerate(operations):
                rng = random.Random(seed + number)
                # Four of five follow the document, the fifth breaks it.
                share = each_many + (number < more)
                for mode, cases in zip(modes, (share - share // 5, share // 5), strict=True):
                    if not cases:
                        continue

                    def one(case: Any) -> None:
                        case.headers.pop(
                            "Commonplace-Sent-To", None
                        )  # an earlier process: 504, as documented
                        if operation.path == "/v1/head":  # noqa: B023
                            case.query.pop("beyond", None)  # nothing is waited for
                        if mode is modes[0]:  # noqa: B023
                            case.body = with_known(case.body, known, rng)  # noqa: B023
                            case.query = with_known(case.query, known, rng)  # noqa: B023
                        token = ada if rng.random() < 0.2 else server.token  # noqa: B023
                        told = _tried(case, server.url, token, checks, result)
                        result.problem(f"{operation.label} (seed {seed})", *told)  # noqa: B023

                    run: Callable[[], None] = given(operation.as_strategy(generation_mode=mode))(one)  # type: ignore[no-untyped-call]
                    run = settings(
                        max_examples=cases, phases=[Phase.generate], database=None, deadline=None,
                        suppress_health_check=list(HealthCheck),
                    )(run)  # fmt: skip
                    again: Callable[[], None] = seeded(seed + number)(run)
                    with suppress(Unsatisfiable):  # there is nothing in it to break
                        again()
    return result


def _tried(case: Any, url: str, token: str, checks: list[Any], result: Result) -> list[str]:
    from schemathesis.core.failures import AcceptedNegativeData, Failure, FailureGroup

    headers = {"Authorization": f"Bearer {token}"}
    answer = case.call(base_url=url, headers=headers)
    result.cases += 1
    result.outcomes[f"{answer.status_code}"] += 1
    try:
        case.validate_response(answer, checks=checks, headers=headers)
    except FailureGroup as group:
        failures = list(group.exceptions)
    except Failure as failure:
        failures = [failure]
    else:
        return []
    # Where the document needs no body, leaving it out is no mistake.
    bare = answer.request.method == "POST" and not answer.request.body
    return [_told(each, answer) for each in failures if not (bare and isinstance(each, AcceptedNegativeData))]


def _told(failure: BaseException, answer: Any) -> str:
    asked = answer.request
    sent = f"{asked.method} {asked.url} {asked.body!r:.150} {dict(asked.headers)}"
    told = str(failure).partition("\n")[0]
    return f"{answer.status_code} {type(failure).__name__} {told}: {answer.text[:150]} to {sent}"
