"""A webhook that keeps what was posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook(ThreadingHTTPServer):
    """Listens on a free port of this machine. `reported` is what was posted, oldest first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Listener)
        self.reported: list[dict[str, Any]] = []

    @property
    def connection(self) -> str:
        """As `AIRFLOW_CONN_…` has it."""
        return json.dumps({"conn_type": "http", "host": f"http://127.0.0.1:{self.server_port}"})

    def about(self, dag_id: str) -> list[dict[str, Any]]:
        return [message for message in list(self.reported) if message["dag_id"] == dag_id]


class _Listener(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        self.server.reported.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the test's own output is enough."""


@contextmanager
def listening() -> Iterator[Webhook]:
    with Webhook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
