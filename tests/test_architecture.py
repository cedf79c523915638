"""The shape of the code: who may import whom, what importing costs, what is public, what is never done."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import commonplace
from commonplace import errors
from commonplace.surfaces.answers import REFUSED, RENDER
from commonplace.surfaces.health import EXTRAS
from commonplace.version import DISTRIBUTION, install_hint

SOURCE = Path(commonplace.__file__).parent

# What each folder may import from the package, besides itself: the way of the data, upwards only.
MAY_IMPORT = {
    "files": {"errors"},
    "engines": {"errors", "version", "files", "ledger.checks"},  # to check the URL and the name of a book
    "ledger": {"errors", "files", "engines.contract", "engines.interrupts", "access"},
    "access": {"errors", "ledger"},
    "index": {"errors", "files", "ledger", "web"},
    "documents": {"errors", "ledger", "access", "verbs"},
    "memory": {
        "errors", "files", "ledger", "access", "index", "documents", "models", "verbs",
        "recall.escaping",  # what a model is given is data
    },
    "recall": {
        "errors", "files", "ledger", "engines.contract", "access", "index", "documents", "memory", "state", "verbs",
        "telemetry",
    },
    "state": {"errors", "ledger", "access", "documents", "memory"},
    "work": {"errors", "files", "ledger", "engines.contract", "access", "index", "memory", "recall", "verbs"},
    "threads": {"errors", "files", "ledger", "access", "memory", "recall", "models", "verbs"},
    "learn": {
        "errors", "files", "ledger", "access", "index", "documents", "memory", "recall", "state", "threads", "work",
        "models", "verbs", "event_verbs",
    },
    "workflow": {
        "errors", "files", "ledger", "engines.contract", "engines.clock", "access", "memory", "recall", "event_verbs",
        "run", "runs", "state", "learn",
    },
    "mirror": {
        "errors", "files", "ledger", "engines.contract", "access", "access_verbs", "documents", "memory", "state",
        "verbs",
    },
    "remote": {
        "errors", "version", "telemetry", "ledger", "engines.contract", "access", "work", "threads", "verbs", "session",
        "run", "participant", "registry", "admin", "wire", "aio", "files",
    },
}  # fmt: skip
# The modules of the package itself, from the lowest to the highest: each may import the folders and those before it.
IN_ORDER = [
    "errors", "version", "web", "models", "telemetry", "verbs", "session", "event_verbs", "access_verbs", "prompts",
    "receipts", "inbox", "runs", "participant", "run", "registry", "finding", "proof", "admin", "wire", "aio", "book",
    "__init__", "__main__",
]  # fmt: skip
# What a module makes for its caller is imported when it is called for.
WHEN_CALLED = {
    "access_verbs": {"participant", "registry"},
    "runs": {"run"},
    "admin": {"book"},
    "registry": {"book"},
    "telemetry": {"registry"},
}


def imports(path: Path) -> set[str]:
    """The package's own modules that a file imports, apart from those for type checkers only."""
    package = ["commonplace", *path.relative_to(SOURCE).parts[:-1]]
    found = set()
    tree = ast.parse(path.read_text())
    hidden = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if node in hidden or not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = package[: len(package) - node.level + 1]
        name = (
            ".".join([*base, *(node.module or "").split(".")])
            .strip(".")
            .removeprefix("commonplace")
            .strip(".")
        )
        found.add(name)
    return found


def test_imports_point_one_way() -> None:
    for folder, allowed in MAY_IMPORT.items():
        for path in (SOURCE / folder).rglob("*.py"):
            known = {name if name in allowed else name.partition(".")[0] for name in imports(path)}
            assert known <= {*allowed, folder}, f"{folder}/{path.name} imports {known - allowed}"
    assert {path.stem for path in SOURCE.glob("*.py")} == set(IN_ORDER)
    for place, module in enumerate(IN_ORDER):
        known = {name.partition(".")[0] for name in imports(SOURCE / f"{module}.py")}
        above = known & set(IN_ORDER[place + 1 :]) - WHEN_CALLED.get(module, set())
        assert not above, f"{module} imports {above}"


@pytest.mark.spec("L12")
def test_surfaces_only_translate() -> None:
    """They know the book's verbs and what these answer with, and nothing of how a book works."""
    may_know = {
        "",
        "access.rights",
        "book",
        "documents.document",
        "engines",
        "engines.contract",
        "errors",
        "files.safe",
        "index.names",
        "learn.note_lines",  # which task is the active one
        "ledger.checks",
        "ledger.encoding",
        "ledger.events",
        "ledger.ledger",
        "ledger.printing",
        "ledger.transfer",
        "memory",
        "memory.items",
        "memory.places",
        "models",
        "participant",
        "recall.book_index",  # which embedders are installed
        "recall.index_migration",
        "recall.long_term",
        "recall.search",
        "registry",
        "telemetry",
        "verbs",
        "version",
        "wire",
        "workflow.load",
    }
    for path in (SOURCE / "surfaces").rglob("*.py"):
        known = {name for name in imports(path) if not name.startswith("surfaces")}
        assert known <= may_know, f"{path.name} imports {known - may_know}"
        assert "_ledger" not in path.read_text()


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if "testing" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_the_shell_renders_answers_that_there_are() -> None:
    """Renderers go by the names of classes, so that showing an answer loads nothing."""
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    named = {name.strip("[]") for name in (*RENDER, *REFUSED) if name.strip("[]")[0].isupper()}
    stray = {name for name in named if f"class {name}(" not in source and f"class {name}:" not in source}
    assert stray <= {"NoneType"}


@pytest.mark.parametrize("held", [commonplace.Book, commonplace.Actor, commonplace.Turn])
def test_what_people_hold_has_few_names(held: type) -> None:
    names = [name for name in dir(held) if not name.startswith("_")]
    assert len(names) <= 40, names


def test_the_public_names_are_sorted_complete_and_documented() -> None:
    assert commonplace.__all__ == sorted(commonplace.__all__)
    assert sorted(" ".join(commonplace._HOMES.values()).split()) == commonplace.__all__
    assert set(commonplace.__all__) <= set(dir(commonplace))
    for name in commonplace.__all__:
        assert getattr(commonplace, name).__doc__ or issubclass(
            getattr(commonplace, name), errors.CommonplaceError
        )
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.CommonplaceError)
    }
    assert raised <= set(commonplace.__all__)


def test_every_error_is_raised_somewhere_and_drawn_in_the_tree() -> None:
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "errors.py")
    codes = set()
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.CommonplaceError):
            assert name in (errors.__doc__ or "")
            assert name == "CommonplaceError" or f"{name}(" in source, f"nothing raises {name}"
            assert str(value.status) in (errors.__doc__ or "") or name == "CommonplaceError"
            codes.add(value.code)
    assert len(codes) == len([v for v in vars(errors).values() if isinstance(v, type) and hasattr(v, "code")])


@pytest.mark.spec("L11")
def test_importing_the_library_loads_nothing_heavy_and_starts_nothing() -> None:
    code = (
        "import sys, threading; before = set(sys.modules); import commonplace; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before})); "
        "assert threading.active_count() == 1"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "commonplace" in loaded
    for heavy in (
        "apsw",
        "numpy",
        "click",
        "rich",
        "pydantic",
        "psycopg",
        "redis",
        "asyncio",
        "ctypes",
        "jsonschema",
        "msgspec",
        "opentelemetry",
        "yaml",
        "pytest",
    ):
        assert heavy not in loaded, f"import commonplace loads {heavy}"


@pytest.mark.spec("L5")
def test_no_except_hides_a_failure() -> None:
    """A broad except either raises again, or stands on the short list of places that hand the error on."""
    hands_it_on = {
        "committer.py": 1,
        "agents.py": 1,
        "tools.py": 1,
        "worker.py": 2,
        "curator.py": 1,
        "runner.py": 1,
        "app.py": 2,  # two ways in: each answers with a problem, and logs what was not expected
        "limits.py": 1,  # `Repeats.once` raises it to each that asks
        "hooks.py": 1,  # to stderr and the log of hooks: a hook never fails its host
    }
    for path in SOURCE.rglob("*.py"):
        quiet = 0
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                broad = node.type is None or (
                    isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
                )
                quiet += broad and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
        if path.parent.name != "testing":
            assert quiet <= hands_it_on.get(path.name, 0), path


def test_types_are_learned_in_one_place() -> None:
    """Elsewhere two threads could meet a type at once: see `ledger.encoding.convert`."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if path.name != "encoding.py":
            assert "msgspec.convert(" not in text, path
            assert not re.search(r"from msgspec import .*\bconvert\b", text), path


def test_no_stub_is_left() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for word in ("NotImplementedError", "TODO", "FIXME", "XXX"):
            assert word not in text, f"{word} in {path.name}"


def test_every_extra_is_declared_and_all_brings_all_of_them() -> None:
    project = tomllib.loads((SOURCE.parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for_users = set(extras) - {"all", "testing", "dev", "bench"}
    assert for_users == {"postgres", "redis", "semantic", "otel", "server", "client"}
    assert extras["all"] == [f"commonplace-memory[{','.join(name for name in extras if name in for_users)}]"]
    assert set(EXTRAS) <= for_users  # what doctor looks for can be installed by that name


@pytest.mark.spec("7.2")
def test_every_install_hint_names_this_distribution() -> None:
    root = SOURCE.parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION == "commonplace-memory"
    assert list(project["scripts"]) == ["commonplace"]  # the command and the package keep the short name
    another_project = re.compile(
        r"pip install [^\n]*?(?<![\w-])commonplace(?![\w-])|(?<![\w-])commonplace\[[a-z]"
    )
    tracked = [
        *(
            path
            for folder in ("src", "benchmarks", "faults", "docs", "scripts")
            for path in (root / folder).rglob("*")
        ),
        *(
            root / name
            for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
        ),
    ]
    texts = [path for path in tracked if path.is_file() and path.suffix not in (".pyc", ".bin", ".npy")]
    wrong = [
        f"{path.relative_to(root)}: {match[0]}"
        for path in texts
        for match in another_project.finditer(path.read_text(errors="replace"))
    ]
    assert wrong == []
    assert "'commonplace-memory[postgres]'" in install_hint("postgres")
