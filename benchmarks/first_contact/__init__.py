"""What a new user tells a book and asks of it: 200 sentences, 150 notes with a question each in other words, 50
corrections, 40 tasks that mention memory and 20 instructions to leave it out.

All of it was written by somebody who had seen neither the code nor any other data, and was measured once before
anything was changed because of it. The people and firms in it do not exist.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def data(name: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
