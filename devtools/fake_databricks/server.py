"""The fake workspace over HTTP."""

from __future__ import annotations

import html
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from databricks.sdk.service.jobs import ListJobsResponse, RepairRunResponse, RunNowResponse

from devtools.fake_databricks.workspace import FakeWorkspace, Refusal, arguments_of, invalid

_API = "/api/2.2/jobs/"
_LONGEST_BODY = 16 * 1024**2
Body = Mapping[str, Any]


@dataclass
class FaultSettings:
    """Injected faults of the server; each entry is used by one request.

    Attributes:
        answers: statuses given instead of an answer; `drop` closes the connection after the request was carried out; at
            a null nothing happens.
        retry_after: seconds that a 429 asks for.
    """

    answers: list[int | str | None] = field(default_factory=list)
    retry_after: int = 1


@dataclass
class FakeServer:
    """A served workspace; `requests` are those received, oldest first.

    Attributes:
        token: what requests must carry: any program and page of this machine reaches the loopback.
        hosts: names by which it may be called, so that a page can't do so under a name of its own.
    """

    workspace: FakeWorkspace
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    hosts: tuple[str, ...] = ()
    mood: FaultSettings = field(default_factory=FaultSettings)
    requests: list[tuple[str, Body]] = field(default_factory=list)

    def answer(self, method: str, body: Body) -> Any:
        """
        Raises:
            Refusal: the request is wrong.
        """
        calls: Mapping[str, Callable[[Body], Any]] = {
            "GET get": self._get,
            "GET list": self._list,
            "POST run-now": self._run_now,
            "GET runs/get": self._run,
            "GET runs/get-output": self._output,
            "POST runs/cancel": self._cancel,
            "POST runs/repair": self._repair,
        }
        if method not in calls:
            raise Refusal(404, "ENDPOINT_NOT_FOUND", f"no API {method}")
        with self.workspace.lock:
            self.requests.append((method, body))
            return calls[method](body)

    def _get(self, body: Body) -> Any:
        return self.workspace.job(arguments_of("get", _numbers(body))["job_id"])

    def _list(self, body: Body) -> Any:
        asked = arguments_of("list", _numbers(body))
        return ListJobsResponse(jobs=self.workspace.listed(asked.get("name")), has_more=False)

    def _run_now(self, body: Body) -> Any:
        run = self.workspace.run_now(arguments_of("run_now", body))
        return RunNowResponse(run_id=run.run_id, number_in_job=run.run_id)

    def _run(self, body: Body) -> Any:
        asked = arguments_of("get_run", _numbers(body))
        return self.workspace.run(asked["run_id"]).shown(history=bool(asked.get("include_history")))

    def _output(self, body: Body) -> Any:
        return self.workspace.task_run(arguments_of("get_run_output", _numbers(body))["run_id"]).output()

    def _cancel(self, body: Body) -> None:
        self.workspace.cancel(arguments_of("cancel_run", body)["run_id"])

    def _repair(self, body: Body) -> Any:
        asked = arguments_of("repair_run", body)
        if not asked.get("rerun_all_failed_tasks") and not asked.get("rerun_tasks"):
            raise invalid("name rerun_tasks, or set rerun_all_failed_tasks")
        return RepairRunResponse(repair_id=self.workspace.repair(asked["run_id"], asked.get("latest_repair_id")))

    def page(self, path: str) -> str:
        """Web page of a run."""
        number = path.rpartition("/")[2]
        run = self.workspace.run(int(number) if number.isdigit() else 0)
        log = html.escape("\n".join(run.log) or "no log yet")
        return f"<!doctype html><title>Run {number}</title><h1>Run {number}: {run.state.value}</h1><pre>{log}</pre>"


def _numbers(query: Body) -> dict[str, Any]:
    """Parameters of a URL as the values they stand for."""
    words = {"true": True, "false": False}
    return {k: words.get(v, int(v) if v.isdigit() and k != "name" else v) for k, v in query.items()}


class _Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        if self.headers.get("Host") not in self.fake.hosts:
            self.close_connection = True
            self._send(403, {"error_code": "PERMISSION_DENIED", "message": "call it by its own address"})
            return
        sent = self.rfile.read(max(0, min(int(self.headers.get("Content-Length") or 0), _LONGEST_BODY)))
        if url.path.startswith("/runs/"):
            self._page(url.path)
            return
        if url.path == "/.well-known/databricks-config":
            self._send(200, {"oidc_endpoint": f"{self.fake.workspace.url}/oidc"})
            return
        mood = self.fake.mood.answers.pop(0) if self.fake.mood.answers else None
        try:
            self._admit(url.path, mood)
            body = json.loads(sent or b"{}") if self.command == "POST" else dict(parse_qsl(url.query))
            found = self.fake.answer(f"{self.command} {url.path.removeprefix(_API)}", body)
        except Refusal as refusal:
            self._send(refusal.status, {"error_code": refusal.code, "message": refusal.message})
            return
        if mood == "drop":
            self.close_connection = True
            return
        self._send(200, found.as_dict() if found is not None else {})

    def _admit(self, path: str, mood: int | str | None) -> None:
        if isinstance(mood, int):
            raise Refusal(mood, "REQUEST_LIMIT_EXCEEDED" if mood == 429 else "INTERNAL_ERROR", "as asked")
        given, wanted = self.headers.get("Authorization") or "", f"Bearer {self.fake.token}"
        if not secrets.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
            raise Refusal(401, "UNAUTHENTICATED", "the token is not the one that the fake printed when it started")
        if not path.startswith(_API):
            raise Refusal(404, "ENDPOINT_NOT_FOUND", f"no API {path}")

    def _page(self, path: str) -> None:
        try:
            self._write(200, self.fake.page(path).encode(), "text/html; charset=utf-8")
        except Refusal as refusal:
            self._write(404, refusal.message.encode(), "text/plain")

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        self._write(status, json.dumps(body).encode(), "application/json")

    def _write(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", str(self.fake.mood.retry_after))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _serve  # noqa: N815 - the names http.server calls


@contextmanager
def serving(command: Sequence[str], port: int = 0) -> Iterator[FakeServer]:
    """A server on the loopback until the block ends, jobs included; its URL is its workspace's.

    Args:
        command: program and first arguments of the job.
        port: 0 for any that is free.
    """
    fake = FakeServer(FakeWorkspace(command))
    handler = type("Handler", (_Handler,), {"fake": fake})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        server.daemon_threads = True
        fake.workspace.url = f"http://127.0.0.1:{server.server_port}"
        fake.hosts = (f"127.0.0.1:{server.server_port}", f"localhost:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            fake.workspace.close()
            server.shutdown()
            thread.join()
