"""The five engines keep the contract, and answer like the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonplace.testing import EngineConformance, Server, check_against_reference
from commonplace.testing.workers import MakeEngine


class TestMemory(EngineConformance):
    many_processes = False

    @pytest.fixture
    def make_engine(self, memory_engine: MakeEngine) -> MakeEngine:
        return memory_engine


class TestFiles(EngineConformance):
    many_books = False

    @pytest.fixture
    def make_engine(self, files_engine: MakeEngine) -> MakeEngine:
        return files_engine

    @pytest.fixture
    def data_dir(self, tmp_path: Path) -> Path:
        return tmp_path


class TestSqlite(EngineConformance):
    many_books = False

    @pytest.fixture
    def make_engine(self, sqlite_engine: MakeEngine) -> MakeEngine:
        return sqlite_engine

    @pytest.fixture
    def data_dir(self, tmp_path: Path) -> Path:
        return tmp_path


class TestPostgres(EngineConformance):
    @pytest.fixture
    def make_engine(self, postgres_engine: MakeEngine) -> MakeEngine:
        return postgres_engine

    @pytest.fixture
    def data_dir(self, postgres: Server) -> Path | None:
        return postgres.data_dir


class TestRedis(EngineConformance):
    @pytest.fixture
    def make_engine(self, redis_engine: MakeEngine) -> MakeEngine:
        return redis_engine

    @pytest.fixture
    def data_dir(self, valkey: Server) -> Path | None:
        return valkey.data_dir


def test_answers_like_the_reference(any_engine: MakeEngine) -> None:
    check_against_reference(any_engine)
