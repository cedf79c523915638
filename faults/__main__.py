"""`python -m faults`: run faults by name or number, print a line each, fail if any was not survived."""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

from . import FAULTS, Fault, Result


def load() -> dict[str, Fault]:
    """All faults, in the order of their numbers."""
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        import_module(f".{path.stem}", __package__)  # each registers its faults

    return dict(sorted(FAULTS.items(), key=lambda item: item[1].number))


def named(name: str, known: dict[str, Fault]) -> list[str]:
    """The faults that a name or number means."""
    return [one for one, fault in known.items() if str(fault.number) == name] or [name]


def show(number: int, name: str, result: Result, seconds: float, seed: int) -> None:
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(result.outcomes.items()))
    figures = ", ".join(f"{name} {value:g}" for name, value in result.figures.items())
    verdict = f"FAILED {result.failed:,}" if result.failed else "survived"
    print(f"{number:>2} {name:<10} {result.cases:>7,} cases  {verdict}  {seconds:.1f} s  seed {seed}")
    for text in (counts, figures, *result.problems):
        if text:
            print(f"     {text}")
    sys.stdout.flush()


def run(name: str, given: argparse.Namespace, seed: int, folder: Path) -> tuple[int, Result]:
    """One fault; an error that it did not expect is a failure, and no reason to leave out the others."""
    one = FAULTS.get(name)
    try:
        if one is None:
            from .soak import soak

            return 25, soak(given.seconds, seed, folder)
        return one.number, one.run(given.count or (one.quick if given.quick else one.full), seed, folder)
    except Exception:  # noqa: BLE001
        result = Result()
        result.problem(f"seed {seed}", traceback.format_exc()[-450:])
        return one.number if one else 25, result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="names or numbers; none: all of them; 'soak': steady load")
    parser.add_argument("--quick", action="store_true", help="the share that runs with the tests")
    parser.add_argument("--count", type=int, help="how many cases, instead of the full or quick count")
    parser.add_argument("--seed", type=int, help="the random choices of an earlier run")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to soak")
    parser.add_argument("--json", type=Path, help="write the results to this file, too")
    given = parser.parse_args()
    logging.getLogger("commonplace").addHandler(logging.NullHandler())
    logging.getLogger("commonplace").propagate = False
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(
        prefix="faults-state-"
    )  # the books here are not the user's
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    known = load()
    names = [one for name in given.names for one in named(name, known)] or list(known)
    unknown = [name for name in names if name not in known and name != "soak"]
    if unknown:
        parser.error(f"no fault named {', '.join(unknown)}: there are {', '.join(known)} and soak")
    report, failed = [], False
    from .places import stop_servers

    try:
        for name in names:
            start = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
                number, result = run(name, given, seed, Path(folder))
            seconds = time.monotonic() - start
            show(number, name, result, seconds, seed)
            failed |= bool(result.failed)
            figures = {
                "outcomes": dict(result.outcomes),
                "figures": result.figures,
                "problems": result.problems,
            }
            report.append(
                {"fault": number, "name": name, "cases": result.cases, "failed": result.failed, **figures}
            )
            report[-1] |= {"seconds": round(seconds, 1), "seed": seed}
    finally:
        stop_servers()
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
