"""Starts the processes of an Airflow, monitors them, and ends them with their children."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import psutil

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.devtools.standalone import processes
from airflow_gddl.devtools.standalone.home import Home, HomeSettings
from airflow_gddl.devtools.standalone.part import MIGRATION, PARTS, Part, PartSpec
from airflow_gddl.devtools.standalone.rest import Rest
from airflow_gddl.metadata.variables import OF_THE_MACHINE
from airflow_gddl.runtime.runners.stopping import unstoppable

_PAUSE_SECONDS = 1.0
_GRACE_SECONDS = 10.0
_HEALTHY = ("metadatabase", "scheduler", "triggerer", "dag_processor")
# Settings of another Airflow or metadata folder must not apply here.
_FOREIGN = ("AIRFLOW_", "AIRFLOW__", "GDDL_")


@dataclass(frozen=True, kw_only=True)
class StartOrder:
    """What to run.

    Attributes:
        environ: of the caller; settings of Airflow and of this package are removed, but for `OF_THE_MACHINE`.
        own: variables for the parts, on top.
        ready_seconds: how long starting may take.
        parts: what is started once the database is there.
    """

    home: Home
    settings: HomeSettings
    environ: Mapping[str, str]
    own: Mapping[str, str]
    ready_seconds: float = 300.0
    parts: tuple[PartSpec, ...] = PARTS


class Standalone:
    """A standalone Airflow like `airflow standalone`, which detects crashed processes and leaves none behind.

    A context manager: leaving it ends every process. Use it from the main thread.

    Attributes:
        parts: what runs, by name; one that is taken out is no longer monitored.
        mark: what its processes have in their environment, see `processes`.
    """

    def __init__(self, order: StartOrder) -> None:
        self.order = order
        self.rest = Rest(order.settings.url)
        self.parts: dict[str, Part] = {}
        self.mark = f"{os.getpid()}:{order.home.root}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def take_over(self) -> None:
        """End processes that a killed supervisor has left in this home.

        Raises:
            FatalError: `STANDALONE_BUSY`: another one runs here.
        """
        for mark in processes.marks():
            pid, _, home = mark.partition(":")
            if home != str(self.order.home.root):
                continue
            if psutil.pid_exists(int(pid)):
                remedy = f"end it (process {pid}), or name another folder"
                raise FatalError("STANDALONE_BUSY", "another Airflow runs here", where=home, remedy=remedy)
            processes.end(processes.marked(mark), _GRACE_SECONDS)

    def begin(self) -> None:
        """Write the home, and start to create the database."""
        self.order.home.write(self.order.settings)
        self.parts = {MIGRATION.name: Part(MIGRATION, self.environ, self.order.home.logs)}

    def start(self) -> None:
        """Wait for the database, then start the parts.

        Raises:
            FatalError: `PART_DIED`, `STANDALONE_SLOW`.
        """
        migration = self.parts[MIGRATION.name]
        self.wait("its database", lambda: migration.exit_status is not None)
        del self.parts[MIGRATION.name]
        if migration.exit_status:
            raise _died(migration)
        self.parts = {spec.name: Part(spec, self.environ, self.order.home.logs) for spec in self.order.parts}

    def wait_ready(self) -> None:
        """Return when every part is healthy.

        Raises:
            FatalError: `PART_DIED`, `STANDALONE_SLOW`.
        """
        self.wait("all parts to work", self._is_healthy)

    def check(self) -> None:
        """
        Raises:
            FatalError: `PART_DIED`, with the last lines of its log.
        """
        for part in self.parts.values():
            if part.exit_status is not None and part.spec != MIGRATION:
                raise _died(part)

    def wait(
        self, what: str, done: Callable[[], bool], seconds: float | None = None, pause: float = _PAUSE_SECONDS
    ) -> None:
        """Return when it is done, and no part has died. Null seconds: as long as starting may take.

        Raises:
            FatalError: `PART_DIED`; `STANDALONE_SLOW` after so many seconds.
        """
        limit = self.order.ready_seconds if seconds is None else seconds
        deadline = time.monotonic() + limit
        while not _passed(done):
            self.check()
            if time.monotonic() > deadline:
                remedy = f"see the logs in {self.order.home.logs}; a busy machine may just need more time"
                raise FatalError("STANDALONE_SLOW", f"waited {limit:g} s for {what}", remedy=remedy)
            time.sleep(pause)

    def stop(self) -> None:
        """End every process, those of tasks and jobs too. A second Ctrl-C makes it quick."""
        try:
            for part in self.parts.values():
                part.ask_to_end()
            # Java processes end with their job.
            processes.end(
                [process for process in processes.marked(self.mark) if "java" not in process.name()], _GRACE_SECONDS
            )
        finally:
            with unstoppable():
                for part in self.parts.values():
                    part.kill()
                while left := processes.marked(self.mark):
                    processes.kill(left)
                self.parts = {}

    @property
    def environ(self) -> dict[str, str]:
        """Environment of the parts; also of a command line that is to speak to them."""
        given = self.order.environ.items()
        kept = {name: value for name, value in given if name in OF_THE_MACHINE or not name.startswith(_FOREIGN)}
        silent = ",".join(filter(None, (kept.get("NO_PROXY", ""), "127.0.0.1", "localhost")))
        return {
            **kept,
            "NO_PROXY": silent,
            "no_proxy": silent,
            "SCARF_ANALYTICS": "false",
            # Airflow's processes give themselves titles; but for this, in the place of their environment with the mark.
            "SPT_NOENV": "1",
            "AIRFLOW_HOME": str(self.order.home.root),
            **self.order.own,
            processes.MARK: self.mark,
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
    return FatalError("PART_DIED", what, where=str(part.log), remedy="see its log, and start again")
