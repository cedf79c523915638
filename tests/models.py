"""A server that answers as a model's does, on loopback, with what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event as Signal
from typing import Any

TURNS = [
    {"role": "user", "content": "I am allergic to peanuts", "name": "Alice"},
    {"role": "assistant", "content": "Noted!"},
    {"role": "user", "content": "And I like window seats", "name": "Alice"},
]
GOOD = {
    "proposals": [
        {"kind": "fact", "text": "Alice is allergic to peanuts", "messages": [1], "confidence": 0.9},
        {"kind": "preference", "text": "Alice likes window seats", "messages": [3]},
    ]
}


class ModelServer(ThreadingHTTPServer):
    """A server that answers as OpenAI's does, with what a test says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status = 200
        self.says: Callable[[str], str] = lambda _prompt: json.dumps(GOOD)
        self.raw: bytes | None = None
        self.drips = False
        self.prompts: list[str] = []
        self.keys: list[str | None] = []
        self.over = Signal()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Answer(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][0]["content"]
        server.prompts.append(prompt)
        server.keys.append(self.headers["Authorization"])
        said = {"choices": [{"message": {"role": "assistant", "content": server.says(prompt)}}]}
        raw = json.dumps(said).encode() if server.raw is None else server.raw
        self.send_response(server.status)
        self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        for byte in raw if server.drips else ():
            if server.over.wait(0.02):
                return
            self.wfile.write(bytes([byte]))
        if not server.drips:
            self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass
