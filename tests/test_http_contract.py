"""What is said about the HTTP API is so: its OpenAPI document, its pages, and the tables in them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from commonplace import errors
from commonplace.surfaces.http.limits import ServerLimits
from commonplace.surfaces.http.openapi import document
from commonplace.surfaces.network import served

from .test_docs import blocks

ROOT = Path(__file__).parent.parent
PAGE, ROUTES = ROOT / "docs" / "http.md", ROOT / "docs" / "http-routes.md"
REGENERATE = "UPDATE_DOCS=1 python -m pytest tests/test_http_contract.py -k tables"


@pytest.mark.spec("7.4")
def test_the_document_is_openapi_and_names_every_address() -> None:
    made = document()
    assert list(OpenAPIV31SpecValidator(made).iter_errors()) == []
    paths = made["paths"]
    for path, verb in served().items():
        ways = paths[f"/v1/{path.replace('.', '/')}"]
        assert ("get" in ways) == (verb.reads or verb.name == "watch"), path
    assert {"/healthz", "/readyz", "/mcp", "/v1/book", "/v1/head", "/v1/watch"} <= paths.keys()
    headers = {name.lower() for name in made["components"]["parameters"]}
    assert headers == {
        "commonplace-actor", "commonplace-scope", "commonplace-reads", "commonplace-run", "commonplace-look",
        "commonplace-lead", "commonplace-file", "idempotency-key", "commonplace-sent-to", "if-match", "if-none-match",
        "last-event-id", "x-request-id",
    }  # fmt: skip
    operations = [way for ways in paths.values() for name, way in ways.items() if name in ("get", "post")]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    assert all(operation.get("summary") for operation in operations)


@pytest.mark.spec("7.4")
def test_each_verb_documents_what_it_may_answer() -> None:
    paths = document()["paths"]

    def answers(path: str, way: str = "post") -> set[str]:
        return set(paths[path][way]["responses"])

    assert "412" in answers("/v1/memory/revise")
    assert "412" not in answers("/v1/remember")
    assert "504" not in answers("/v1/memory/list", "get")
    assert "304" in answers("/v1/memory/list", "get")
    assert "422" in answers("/v1/turn/write")
    assert "422" not in answers("/v1/run/status")
    documented = {
        status
        for ways in paths.values()
        for way in ways.values()
        if "responses" in way
        for status in way["responses"]
    }
    assert documented == {
        "200",
        "304",
        "default",
        *map(str, {400, 401, 403, 404, 409, 410, 412, 413, 422, 429, 500, 501, 503, 504, 507}),
    }


# the pages


def error_table() -> str:
    kinds = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.CommonplaceError)
    }
    about = dict(re.findall(r"(\w+) +\d{3}  (.*)", errors.__doc__ or ""))
    rows = sorted((kind.status, kind.code, about[kind.__name__]) for kind in kinds if kind.__name__ in about)
    lines = [f"| {status} | `{code}` | {text} |" for status, code, text in rows]
    return "\n".join(["| status | code | meaning |", "|---|---|---|", *lines])


def limits_table() -> str:
    source = Path(sys.modules[ServerLimits.__module__].__file__ or "").read_text()
    described = re.findall(r'^    (\w+): \w+ = (.*)\n    """(.*)"""$', source, re.MULTILINE)
    assert [name for name, _, _ in described] == list(ServerLimits.__struct_fields__)
    lines = [f"| `{name}` | {getattr(ServerLimits(), name):,.0f} | {text} |" for name, _, text in described]
    return "\n".join(["| limit | by default | meaning |", "|---|---|---|", *lines])


def filled(page: str) -> str:
    for name, table in (
        ("errors: made from errors.py", error_table()),
        ("limits: made from ServerLimits", limits_table()),
    ):
        before, begins, rest = page.partition(f"<!-- {name} -->\n")
        _, ends, after = rest.partition("<!-- end -->")
        page = f"{before}{begins}{table}\n{ends}{after}"
    return page


def routes_page() -> str:
    """Every address, by the first part of its path."""
    lines = [
        "# Addresses of the HTTP API",
        "",
        "Made from the verbs. [http.md](http.md) tells how they are called; `/openapi.json` has all arguments",
        "and answers.",
        "",
    ]
    made = document()["paths"]
    groups: dict[str, list[str]] = {}
    for path, ways in made.items():
        tag = next(way["tags"][0] for name, way in ways.items() if name in ("get", "post"))
        methods = " ".join(name.upper() for name in ("get", "post") if name in ways)
        operation: dict[str, Any] = ways.get("post") or ways["get"]
        summary = operation["summary"].replace("|", "\\|")
        groups.setdefault(tag, []).append(f"| `{path}` | {methods} | {summary} |")
    for tag, rows in groups.items():
        lines += [f"## {tag}", "", "| address | methods | |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def test_the_tables_are_current() -> None:
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(filled(PAGE.read_text()))
        ROUTES.write_text(routes_page())
    assert filled(PAGE.read_text()) == PAGE.read_text(), f"docs/http.md is stale: {REGENERATE}"
    assert ROUTES.read_text() == routes_page(), f"docs/http-routes.md is stale: {REGENERATE}"
    assert "| 409 | `conflict` |" in PAGE.read_text()
    assert "| `streams_each` | 50 |" in PAGE.read_text()


@pytest.mark.spec("7.4")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_quick_start_runs_as_printed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ((_, shown), *_) = blocks(PAGE, "console")
    steps = re.findall(r"^\$ (.*)$", shown, re.MULTILINE)
    assert any(" serve " in step for step in steps)
    command = tmp_path / "bin" / "commonplace"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m commonplace "$@"\n')
    command.chmod(0o755)
    script = "\n".join(["set -eu", "trap 'kill $!; wait $! || true' EXIT", *steps])
    ran = subprocess.run(
        ["bash", "-c", script.replace("8787", str(port)).replace("python3", f'"{sys.executable}"')],
        cwd=tmp_path, env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Postgres listens on 5433" in ran.stdout
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    (unit,) = (text for _, text in blocks(ROOT / "docs" / "deployment.md", "ini"))
    executable = tmp_path / "commonplace"
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    file = tmp_path / "commonplace.service"
    file.write_text(
        unit.replace("/opt/commonplace/bin/commonplace", str(executable)).replace(
            "User=commonplace\nGroup=commonplace\n", ""
        )
    )
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    assert str(file.name) not in checked.stderr, checked.stderr
    assert checked.returncode == 0, checked.stderr
