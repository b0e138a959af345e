"""Starts the processes of an Airflow, monitors them, and ends them with their children."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from airflow_gddl.contract.codes import DEMO_FAILED
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.metadata.settings import OF_THE_MACHINE
from airflow_gddl.runners.child import unstoppable
from devtools.standalone.home import Home, HomeSettings
from devtools.standalone.part import MIGRATION, PARTS, Part, PartSpec

_REPOSITORY = Path(__file__).parents[2]
"""Airflow's configuration names a module of this package."""

MARK = "STARTED_BY_GDDL"


def marked(value: str) -> list[psutil.Process]:
    """Processes whose mark is this value; never this process."""
    return [process for process, found in _marks() if found == value]


def _is_java(process: psutil.Process) -> bool:
    try:
        return "java" in process.name()
    except psutil.NoSuchProcess:  # it has ended since
        return False


def marks() -> set[str]:
    """The marks of all processes of this user."""
    return {found for _, found in _marks()}


def cpu_seconds(value: str) -> float:
    """CPU time of all processes with this mark so far, and of those below them that have ended."""
    total = 0.0
    for process in marked(value):
        with suppress(psutil.NoSuchProcess):
            total += cpu_of(process)
    return total


def cpu_of(process: psutil.Process) -> float:
    """User and system, and both of children that it has waited for.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    return sum(process.cpu_times()[:4])


def end(processes: Iterable[psutil.Process], grace_seconds: float) -> None:
    """Terminate them, and kill those that do not end in time."""
    asked = list(processes)
    for process in asked:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(asked, timeout=grace_seconds)
    kill(left)


def kill(processes: Iterable[psutil.Process]) -> None:
    doomed = list(processes)
    for process in doomed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(doomed, timeout=5)


def _marks() -> Iterator[tuple[psutil.Process, str]]:
    own = psutil.Process().pid
    for process in psutil.process_iter():
        if process.pid == own:
            continue
        try:
            found = process.environ().get(MARK)
            alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            continue  # ended, or owned by another user
        if found is not None and alive:
            yield process, found


_SECONDS = 60.0


class RefusedError(FatalError):
    """Airflow answered with this HTTP status, which is an error."""

    status: int = 0


class Rest:
    """Answers are parsed JSON.

    Args:
        url: of the API server, without a path.

    Raises (every method):
        RefusedError: `DEMO_FAILED`: the server answered with an error.
        RetriableError: `DEMO_FAILED`: there was no answer.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._token = ""
        # A proxy that the environment names is for other machines.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, **query: str | int | list[str]) -> Any:
        asked = f"?{urllib.parse.urlencode(query, doseq=True)}" if query else ""
        return self._call("GET", f"/api/v2/{path}{asked}", None)

    def post(self, path: str, body: object) -> Any:
        return self._call("POST", f"/api/v2/{path}", body)

    def patch(self, path: str, body: object) -> Any:
        return self._call("PATCH", f"/api/v2/{path}", body)

    def _call(self, method: str, path: str, body: object) -> Any:
        self._token = self._token or self._send("GET", "/auth/token", None)["access_token"]
        return self._send(method, path, body)

    def _send(self, method: str, path: str, body: object) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 - http on loopback
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:2000]
            refused = RefusedError(DEMO_FAILED, f"{method} {path}: {error.code} {said}", where=self.url)
            refused.status = error.code
            raise refused from error
        except (OSError, http.client.HTTPException) as error:
            remedy = "see the log of the api-server"
            what = f"{method} {path}: no answer: {error}"
            raise RetriableError(DEMO_FAILED, what, where=self.url, remedy=remedy) from error


_PAUSE_SECONDS = 1.0
_GRACE_SECONDS = 10.0
_HEALTHY = ("metadatabase", "scheduler", "triggerer", "dag_processor")
# Settings of another Airflow or metadata folder must not apply here.
_FOREIGN = ("AIRFLOW_", "AIRFLOW__", "GDDL_")


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """What to run.

    Attributes:
        environ: of the caller; settings of Airflow and of this package are removed, but for `OF_THE_MACHINE`.
        variables: variables for the parts, on top.
        ready_seconds: how long starting may take.
        parts: what is started once the database is there.
    """

    home: Home
    settings: HomeSettings
    environ: Mapping[str, str]
    variables: Mapping[str, str]
    ready_seconds: float = 300.0
    parts: tuple[PartSpec, ...] = PARTS


class Standalone:
    """A standalone Airflow like `airflow standalone`, which detects crashed processes and leaves none behind.

    A context manager: leaving it ends every process. Use it from the main thread.

    Attributes:
        parts: what runs, by name; one that is taken out is no longer monitored.
        mark: what its processes have in their environment, see `processes`.
    """

    def __init__(self, request: StartRequest) -> None:
        self.request = request
        self.rest = Rest(request.settings.url)
        self.parts: dict[str, Part] = {}
        self.mark = f"{os.getpid()}:{request.home.root}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def take_over(self) -> None:
        """End processes that a killed supervisor has left in this home.

        Raises:
            FatalError: `DEMO_FAILED`: another one runs here.
        """
        for mark in marks():
            pid, _, home = mark.partition(":")
            if home != str(self.request.home.root):
                continue
            if psutil.pid_exists(int(pid)):
                remedy = f"end it (process {pid}), or name another folder"
                raise FatalError(DEMO_FAILED, "another Airflow runs here", where=home, remedy=remedy)
            end(marked(mark), _GRACE_SECONDS)

    def begin(self) -> None:
        """Write the home, and start to create the database."""
        self.request.home.write(self.request.settings)
        self.parts = {MIGRATION.name: Part(MIGRATION, self.environ, self.request.home.logs)}

    def start(self) -> None:
        """Wait for the database, then start the parts.

        Raises:
            FatalError: `DEMO_FAILED`.
        """
        migration = self.parts[MIGRATION.name]
        self.wait("its database", lambda: migration.exit_status is not None)
        del self.parts[MIGRATION.name]
        if migration.exit_status:
            raise _died(migration)
        self.parts = {spec.name: Part(spec, self.environ, self.request.home.logs) for spec in self.request.parts}

    def wait_ready(self) -> None:
        """Return when every part is healthy.

        Raises:
            FatalError: `DEMO_FAILED`.
        """
        self.wait("all parts to work", self._is_healthy)

    def check(self) -> None:
        """
        Raises:
            FatalError: `DEMO_FAILED`, with the last lines of its log.
        """
        for part in self.parts.values():
            if part.exit_status is not None and part.spec != MIGRATION:
                raise _died(part)

    def wait(
        self, what: str, done: Callable[[], bool], seconds: float | None = None, pause: float = _PAUSE_SECONDS
    ) -> None:
        """Return when it is done, and no part has died. Null seconds: as long as starting may take.

        Raises:
            FatalError: `DEMO_FAILED`, also after so many seconds.
        """
        limit = self.request.ready_seconds if seconds is None else seconds
        deadline = time.monotonic() + limit
        while not _passed(done):
            self.check()
            if time.monotonic() > deadline:
                remedy = f"see the logs in {self.request.home.logs}; a busy machine may just need more time"
                raise FatalError(DEMO_FAILED, f"waited {limit:g} s for {what}", remedy=remedy)
            time.sleep(pause)

    def stop(self) -> None:
        """End every process, those of tasks and jobs too. A second Ctrl-C makes it quick."""
        try:
            for part in self.parts.values():
                part.ask_to_end()
            # Java processes end with their job.
            end([process for process in marked(self.mark) if not _is_java(process)], _GRACE_SECONDS)
        finally:
            with unstoppable():
                for part in self.parts.values():
                    part.kill()
                while left := marked(self.mark):
                    kill(left)
                self.parts = {}

    @property
    def environ(self) -> dict[str, str]:
        """Environment of the parts; also of a command line that is to speak to them."""
        given = self.request.environ.items()
        kept = {name: value for name, value in given if name in OF_THE_MACHINE or not name.startswith(_FOREIGN)}
        silent = ",".join(filter(None, (kept.get("NO_PROXY", ""), "127.0.0.1", "localhost")))
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_REPOSITORY), kept.get("PYTHONPATH", "")))),
            "NO_PROXY": silent,
            "no_proxy": silent,
            "SCARF_ANALYTICS": "false",
            # Airflow's processes give themselves titles; but for this, in the place of their environment with the mark.
            "SPT_NOENV": "1",
            "AIRFLOW_HOME": str(self.request.home.root),
            **self.request.variables,
            MARK: self.mark,
        }

    def _is_healthy(self) -> bool:
        health = self.rest.get("monitor/health")
        return all(health[name]["status"] == "healthy" for name in _HEALTHY)


def _passed(done: Callable[[], bool]) -> bool:
    """Whether it is done; retries while the server does not respond, unless `check` finds it dead."""
    try:
        return done()
    except RetriableError:
        return False


def _died(part: Part) -> FatalError:
    status = part.exit_status or 0
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    what = f"Airflow's {part.spec.name} {how}; its last lines:\n{part.tail}\n"
    return FatalError(DEMO_FAILED, what, where=str(part.log), remedy="see its log, and start again")
