"""Checks of the runner, and of the tables that its jobs make: those of `gddl demo`."""

from __future__ import annotations

import importlib
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_gddl.cli import job
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.init import DemoFolder
from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.codes import JOB_CANCELLED, PACKAGE_MISSING
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.runners.child import Stopped
from airflow_gddl.runners.descriptor import RunnerSettings, SubmissionContext, make_platform, make_runner
from airflow_gddl.runners.interface import ENDED, FromEnvironment, Handle, JobOutcome, ProgressEvent, Runner, RunStatus
from airflow_gddl.runners.remote import RemoteRunner, TaskKey, pauses
from airflow_gddl.tools.platform_check.checks import CheckContext, FoundError, NotTriedError

_SIMULATION, _TABLES = "airflow_gddl.tools.simulate.simulation", "airflow_gddl.tools.simulate.table"
"""The room of `gddl demo`, which may be absent."""
_INSTALL = "pip install 'airflow-gddl[demo]'"
_SCALE, _ROUNDS = 0.01, 1
POLL_SECONDS, END_SECONDS, CLAIM_SECONDS = 5.0, 120.0, 65.0
"""Between the first two polls of a run elsewhere; how long a stopped one may take to end; when its claims expire."""


@dataclass
class Listener:
    """Whether a job has shown a sign of work."""

    heard: bool = False

    def on_progress(self, event: ProgressEvent) -> None:  # noqa: ARG002 - any step will do
        self.heard = True

    def on_result(self, result: JobResult) -> None:
        """Results are in the outcome."""


@dataclass
class JobChecks:
    """The checks of jobs, in their order; each builds on those before.

    Attributes:
        handles: runs elsewhere that may be going on.
    """

    context: CheckContext
    handles: list[Handle] = field(default_factory=list)
    _source: Any = None
    _landed: int = -1
    _tables: tuple[TableSpec, ...] = ()
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> list[str]:
        """Stop what is going on, and remove files of this machine; return what is left."""
        left = [text for handle in self.handles if (text := self._still_going(handle))]
        if self._scratch is not None:
            self._scratch.cleanup()
        return left

    def _still_going(self, handle: Handle) -> str:
        """Stop a run, which else would write into the folder after it was removed; empty where it has ended."""
        try:
            state = self._ended(handle).state
        except Exception as error:  # noqa: BLE001 - whatever the platform answers is what is left
            return f"the run {handle.run} may be going on: {error}"
        return "" if state in ENDED else f"the run {handle.run} is {state}; end it by hand"

    # Checks

    def load(self) -> str:
        self._land(0)
        results = self._succeed(self.job())
        return f"{len(results)} tables, {sum(result.rows_read for result in results):,} rows"

    def cancel(self) -> str:
        """Stop a job at its first sign of work; elsewhere, as soon as its run is known."""
        self._land(_ROUNDS)
        listener = Listener()
        outcome = self.outcome_of(self.job(), listener, lambda: listener.heard or bool(self.handles))
        ends = [self._ended(handle).state for handle in self.handles]
        if going := [state for state in ends if state not in ENDED]:
            raise FoundError(f"a run that was cancelled is {going[0]} after {END_SECONDS:g} seconds")
        if (
            outcome.cancelled_by is None
            or "succeeded" in ends
            or all(one.status == "succeeded" for one in outcome.results)
        ):
            raise NotTriedError("ended")
        codes = Counter(result.error.code for result in outcome.results if result.error is not None)
        if set(codes) != {JOB_CANCELLED} or set(ends) - {"cancelled"}:
            raise FoundError(
                f"a job that was stopped ended with {dict(codes) or 'no error'} {', '.join(ends)}".rstrip()
            )
        if self.handles:
            self._sleep(CLAIM_SECONDS)
        self.handles.clear()
        return f"{codes.total()} of {len(outcome.results)} tables were left"

    def resume(self) -> str:
        self._land(_ROUNDS)
        return f"{sum(result.rows_read for result in self._succeed(self.job())):,} rows were left"

    def verify(self) -> str:
        results = self._succeed(self.job(JobOptions(action=Verify())))
        wrong = [result.table for result in results if job.verdict(result) != "equal"]
        if wrong:
            raise FoundError(f"not equal to their change tables: {', '.join(wrong)}")
        return f"{len(results)} tables are equal to their change tables"

    def rows(self) -> str:
        return f"{sum(map(self._compare, self._tables)):,} rows are those of the source"

    # The demo's tables

    def _prepare(self) -> None:
        """
        Raises:
            NotTriedError: `no-package`.
        """
        self._scratch = tempfile.TemporaryDirectory(prefix="gddl-check-")
        folder = DemoFolder(Path(self._scratch.name))
        folder.write_project()
        try:
            room = importlib.import_module(_SIMULATION)
            options = room.SourceOptions(
                landing=folder.landing, scale=_SCALE, rounds=_ROUNDS, seed=0, now=self.context.cli.now()
            )
            self._source = room.DemoSource(options)
        except ImportError as error:
            raise NotTriedError("no-package", f"{error}; {_INSTALL}") from error
        except FatalError as error:
            if error.code != PACKAGE_MISSING:
                raise
            raise NotTriedError("no-package", f"{error.what}; {_INSTALL}") from error
        read = metadata_folder.read(self.context.cli.apart(), str(folder.metadata))
        self._tables = tuple(replace(spec, size=self._size) for spec in read.tables)

    @property
    def _size(self) -> str:
        """The tier that most of the user's tables have: its jobs are deployed."""
        sizes = Counter(spec.size for spec in self.context.loaded.tables if spec.enabled)
        return sizes.most_common(1)[0][0] if sizes else TableSpec(table="a.b", keys=()).size

    def _land(self, until: int) -> None:
        """Land the rounds up to this one, the full load being 0, as the service would, in its order."""
        if self._source is None:
            self._prepare()
        root = Path(self._source.source.landing)
        while self._landed < until:
            self._landed += 1
            for path in self._source.simulator.land(self._landed):
                target = join(self.context.roots.landing, path.relative_to(root).as_posix())
                self.context.store.write(target, path.read_bytes())

    def _compare(self, spec: TableSpec) -> int:
        """How many rows a replica has, which are those of the source.

        Raises:
            FoundError: they are not.
        """
        room = importlib.import_module(_TABLES)
        path = Layout.of(self.context.roots, spec).replica
        try:
            replica = room.read_replica(path, self.context.store.options_of(path))
        except ImportError as error:
            raise NotTriedError("no-package", f"{error}; {_INSTALL}") from error
        truth = self._source.truth(spec.table)
        if found := room.differences(truth, replica, spec.keys):
            raise FoundError(f"{spec.table} differs from the source: {found}")
        return int(truth.num_rows)

    # Jobs

    def job(self, options: JobOptions | None = None) -> JobSpec:
        """The specification of a job of the demo's tables."""
        return JobSpec(
            run_id=self.context.cli.run_id(),
            roots=self.context.roots,
            tables=self._tables,
            tiers=self.context.loaded.tiers,
            options=options or JobOptions(),
        )

    def _succeed(self, spec: JobSpec) -> tuple[JobResult, ...]:
        """
        Raises:
            FoundError: a table failed, or has no result.
        """
        outcome = self.outcome_of(spec, Listener())
        bad = [result for result in outcome.results if result.status == "failed"]
        if bad:
            error = bad[0].error
            said = f"{bad[0].table}: {error.message}" if error is not None else bad[0].table
            log = f"; log: {outcome.log}" if outcome.log else ""
            raise FoundError(f"{len(bad)} tables failed, {said}{log}", error.code if error is not None else "")
        if without := {table.table for table in spec.tables} - {result.table for result in outcome.results}:
            raise FoundError(f"the job ended without a result of {', '.join(sorted(without))}")
        return outcome.results

    def outcome_of(self, spec: JobSpec, listener: Listener, stop: Callable[[], bool] = lambda: False) -> JobOutcome:
        """Run a job to its end; at the time limit it is stopped as by Ctrl-C.

        Args:
            stop: whether it is to be stopped, asked all the time.

        Raises:
            Stopped: the command was stopped meanwhile.
            NotTriedError: `time`.
        """
        sent: list[bool] = []

        def tick() -> None:
            if not sent and (self.context.seconds_left <= 0 or stop()):
                sent.append(True)
                signal.raise_signal(signal.SIGTERM)

        outcome = self._runner(spec, tick).run(spec, listener)
        if outcome.cancelled_by is None:
            self.handles.clear()
        elif not sent:
            raise Stopped(outcome.cancelled_by)
        self.context.require_time()
        return outcome

    def _runner(self, spec: JobSpec, tick: Callable[[], None]) -> Runner:
        loaded, cli = self.context.loaded, self.context.cli
        task = TaskKey(pipeline="check", run=spec.run_id, task="run")
        settings = RunnerSettings(
            command=cli.job_command,
            environ=cli.environ,
            declared=loaded.runners.get(loaded.runner, {}),
            submission=SubmissionContext(task=task, roots=spec.roots),
            tick=tick,
        )
        runner = make_runner(loaded.runner, settings)
        if isinstance(runner, RemoteRunner):

            def sleep(seconds: float) -> None:
                tick()
                self._sleep(seconds)

            runner.first_pause, runner.sleep, runner.on_run = POLL_SECONDS, sleep, self.handles.append
        return runner

    def _sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, min(seconds, self.context.seconds_left)))

    def _ended(self, handle: Handle) -> RunStatus:
        """Status of a run after it was asked to stop, when it has ended or had its time to do so."""
        loaded, cli = self.context.loaded, self.context.cli
        declared = loaded.runners.get(loaded.runner, {})
        platform = make_platform(loaded.runner, declared, cli.environ, FromEnvironment())
        platform.cancel(handle)
        until = time.monotonic() + END_SECONDS
        for pause in pauses(POLL_SECONDS):
            status = platform.poll(handle)
            if status.has_ended or time.monotonic() + pause > until:
                return status
            time.sleep(pause)
        raise AssertionError("pauses have no end")


def probes(checks: JobChecks) -> Mapping[str, Callable[[CheckContext], str]]:
    """The checks by name, in their order."""
    return {
        "job.load": lambda _: checks.load(),
        "job.cancel": lambda _: checks.cancel(),
        "job.resume": lambda _: checks.resume(),
        "tables.verify": lambda _: checks.verify(),
        "tables.rows": lambda _: checks.rows(),
    }
