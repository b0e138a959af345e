"""Checks of the runner, and of the tables that its jobs make: those of `gddl demo`."""

from __future__ import annotations

import importlib
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from airflow_gddl.cli import job
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.init import DemoFolder
from airflow_gddl.contract.actions import Die, Verify
from airflow_gddl.contract.codec import to_document
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.extensions import CATALOGS
from airflow_gddl.contract.features import folders
from airflow_gddl.contract.java import find_java
from airflow_gddl.contract.layout import Layout, join, same_place, spec_path
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec, TierSpec
from airflow_gddl.contract.sql_types import quoted
from airflow_gddl.platform_check import databricks_sql
from airflow_gddl.platform_check.catalog_entries import Entries, begin, database_of, to_register
from airflow_gddl.platform_check.checks import FoundError, NotTriedError, Row
from airflow_gddl.platform_check.glue_entries import GlueEntries
from airflow_gddl.platform_check.place import CheckContext
from airflow_gddl.runners.child import Stopped, nothing
from airflow_gddl.runners.descriptor import RUNNERS, RunnerSettings, SubmissionContext, make_platform, make_runner
from airflow_gddl.runners.interface import (
    ENDED,
    Handle,
    JobOutcome,
    Platform,
    ProgressEvent,
    RunRequest,
    RunStatus,
)
from airflow_gddl.runners.remote import RemoteRunner, TaskKey, pauses

_SIMULATION, _TABLES = "airflow_gddl.simulate.simulation", "airflow_gddl.simulate.table"
"""The room of `gddl demo`, which may be absent."""
_INSTALL = "pip install 'airflow-gddl[demo]'"
SCALE, ROUNDS = 0.01, 1
MERGED = "nyc.planes"
"""The table that Spark's own MERGE loads."""
REGISTERED = "nyc.airlines"
"""The table that is registered in a catalog; all of its columns are text."""
KILLED, SPARK, CATALOG = "lake-killed", "lake-spark", "lake-catalog"
"""Lakes of their own for the job that is killed, for Spark's MERGE, and, with its name, for each catalog."""
OF_GLUE = ("glue", "iceberg_glue")
"""Kinds of catalogs that Athena reads."""
OF_DATABRICKS = "unity"
"""Kind of the catalog that Databricks reads."""


@dataclass
class Listener:
    """Calls `on_first` at a job's first sign of work."""

    on_first: Callable[[], None] = nothing
    heard: bool = False

    def on_progress(self, event: ProgressEvent) -> None:  # noqa: ARG002 - any step will do
        if not self.heard:
            self.heard = True
            self.on_first()

    def on_result(self, result: JobResult) -> None:
        """Results are in the outcome."""


@dataclass
class JobChecks:
    """The checks of one course, in their order; each builds on those before.

    Attributes:
        handles: remote runs that may be going on.
        lakes: names of lakes whose tables are compared with the source.
        registered: entries by the name of the catalog that has the table.
    """

    context: CheckContext
    handles: list[Handle] = field(default_factory=list)
    lakes: list[str] = field(default_factory=lambda: ["lake"])
    registered: dict[str, Entries] = field(default_factory=dict)
    _source: Any = None
    _landed: int = -1
    _tables: tuple[TableSpec, ...] = ()
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> list[str]:
        """Stop what is going on, and remove files of this machine; return what is left."""
        left = [text for handle in self.handles if (text := self._still_going(handle))]
        self.handles.clear()
        if self._scratch is not None:
            self._scratch.cleanup()
        return left

    def _still_going(self, handle: Handle) -> str:
        """Stop a remote run, which else would write into the folder after it was removed; empty where it has ended."""
        try:
            platform = self._platform()
            platform.cancel(handle)
            state = self._ended(platform, handle, self.context.end_seconds).state
        except Exception as error:  # noqa: BLE001 - whatever the platform answers is what is left
            return f"the run {handle.run} may be going on: {error}"
        return "" if state in ENDED else f"the run {handle.run} is {state}; end it by hand"

    # Checks

    def load(self) -> str:
        self._land(0)
        results = self._succeed(self.job())
        return f"{len(results)} tables, {sum(result.rows_read for result in results):,} rows"

    def once(self) -> str:
        if not self._is_remote:
            raise NotTriedError("job-here")
        self._land(0)
        request = self._request()
        for _ in range(2):
            self._submit(request)
        if len({handle.run for handle in self.handles}) != 1:
            raise FoundError("two submissions with one token started two runs")
        return "the second submission found the run"

    def cancel(self) -> str:
        self._land(ROUNDS)
        return self._cancel_there() if self._is_remote else self._cancel_here()

    def killed(self) -> str:
        self._land(ROUNDS)
        if self._is_remote:  # no request kills a job there: it does so itself
            code, outcome = "REMOTE_RUN_FAILED", self.outcome_of(self.job(JobOptions(action=Die()), lake=KILLED))
        else:
            code, outcome = "JOB_DIED", self.outcome_of(self.job(lake=KILLED), Listener(_kill_job))
        codes = Counter(result.error.code for result in outcome.results if result.error is not None)
        if set(codes) - {code} or (self._is_remote and not codes):
            raise FoundError(f"a job that was killed ended with {dict(codes) or 'no error'}{_first_error(outcome)}")
        if self._is_remote and not self._has_begun(KILLED):
            raise FoundError(f"the job ended before it loaded anything{_first_error(outcome)}")
        self.lakes.append(KILLED)
        if not codes:
            raise NotTriedError("ended")
        if self._is_remote:
            self._sleep(self.context.claim_seconds)
        return f"{codes.total()} of {len(outcome.results)} tables failed with {code}"

    def resume(self) -> str:
        self._land(ROUNDS)
        rows = 0
        for lake in self.lakes:
            rows += sum(result.rows_read for result in self._succeed(self.job(lake=lake)))
        return f"{rows:,} rows were left"

    def verify(self) -> str:
        results = self._succeed(self.job(JobOptions(action=Verify())))
        wrong = [result.table for result in results if job.verdict(result) != "equal"]
        if wrong:
            raise FoundError(f"not equal to their change tables: {', '.join(wrong)}")
        return f"{len(results)} tables are equal to their change tables"

    def rows(self) -> str:
        total = sum(self._compare(lake, spec) for lake in self.lakes for spec in self._tables)
        return f"{total:,} rows are those of the source"

    def spark(self) -> str:
        self._land(ROUNDS)
        if not self._is_remote:
            try:
                find_java(self.context.cli.environ)
            except FatalError as error:
                raise NotTriedError("no-java", error.what) from error
        (spec,) = (replace(one, commit="merge", depends_on=()) for one in self._tables if one.table == MERGED)
        (result,) = self._succeed(self.job(lake=SPARK, tables=(spec,)))
        if result.commit != "merge":
            raise FoundError("the job did not use Spark's MERGE")
        return f"{self._compare(SPARK, spec):,} rows merged by Spark"

    def register(self) -> str:
        named = to_register(self.context.loaded.catalogs)
        if not named:
            raise NotTriedError("no-catalog")
        self._land(ROUNDS)
        untried: list[NotTriedError] = []
        wrong: list[FoundError] = []
        for name in named:
            try:
                self.registered[name] = self._register_in(name)
            except NotTriedError as error:
                untried.append(error)
            except (FoundError, GddlError) as error:
                cause = error.code if isinstance(error, GddlError) else error.cause
                wrong.append(FoundError(f"{name}: {str(error).rstrip('.')}", cause))
        if wrong:
            raise FoundError("; ".join(map(str, wrong)), wrong[0].cause)
        if untried:
            detail = f": {untried[0].detail}" if untried[0].detail else ""
            raise NotTriedError(untried[0].reason, f"{len(untried)} of {len(named)}{detail}")
        return f"{len(named)} registered, and found in the catalog"

    def _register_in(self, name: str) -> Entries:
        """Entries of the catalog, which has the table now.

        Raises:
            NotTriedError: as `catalog_entries.begin`, and `time`.
            FoundError: it does not have it, or the database was there before.
            GddlError: as `Entries`.
        """
        entries = begin(self.context, name, is_remote=self._is_remote)
        spec = self.context.loaded.catalogs[name]
        is_iceberg = CATALOGS.get(spec.kind).is_iceberg
        (row,) = (one for one in self._tables if one.table == REGISTERED)
        row = replace(row, catalog=name, depends_on=(), iceberg=is_iceberg)
        database = database_of(self.context.place.root, name)
        spec = replace(spec, database=database, table="{table}", tables=("replica",))
        job = replace(self.job(lake=f"{CATALOG}-{name}", tables=(row,)), catalogs={name: spec})
        (result,) = self._succeed(job)
        for warning in result.warnings:
            if warning.code.startswith(("CATALOG_", "PACKAGE_")):
                raise FoundError(warning.message, warning.code)
        shown = folders(job.roots.lake, row, "replica").values()
        place = next(iter(shown)) if is_iceberg else Layout.of(job.roots, row).replica
        wanted = {row.name: same_place(place)}
        found = {table: same_place(location) for table, location in (entries.tables() or {}).items()}
        if found != wanted:
            raise FoundError(f"the catalog has {found}, not {wanted}")
        return entries

    def athena(self) -> str:
        """Every catalog in Glue that has the table is asked."""
        known = to_register(self.context.loaded.catalogs)
        named = [name for name, spec in known.items() if spec.kind in OF_GLUE and spec.catalog_id is None]
        if not self.context.on_s3 or not named:
            raise NotTriedError("no-glue")
        rows = 0
        for name in named:
            entries = self.registered.get(name)
            if not isinstance(entries, GlueEntries):
                raise NotTriedError("failed")
            truth = self._source.truth(REGISTERED)
            columns = ", ".join(f'"{column}"' for column in truth.schema.names)
            sql = f'SELECT {columns} FROM "{REGISTERED.partition(".")[2]}"'  # noqa: S608 - names of the demo's own table
            output = self.context.place.below("athena", name)
            rows += _are_equal(entries.query(sql, output, self.context.seconds_left), truth)
        return f"{rows} rows are those of the source"

    def databricks_sql(self) -> str:
        loaded, environ = self.context.loaded, self.context.cli.environ
        kinds = to_register(loaded.catalogs).items()
        named = [
            name
            for name, spec in kinds
            if spec.kind == OF_DATABRICKS and databricks_sql.is_workspace_known(loaded.runner, spec.url, environ)
        ]
        if not named:
            raise NotTriedError("no-workspace")
        (name,) = named
        if name not in self.registered:
            raise NotTriedError("failed")
        declared = loaded.runners.get(loaded.runner, {})
        client = databricks_sql.connect(loaded.runner, declared, self.context.connections)
        warehouse = databricks_sql.warehouse(client, environ)
        truth = self._source.truth(REGISTERED)
        columns = ", ".join(map(quoted, truth.schema.names))
        parts = (loaded.catalogs[name].catalog_name, database_of(self.context.place.root, name))
        table = ".".join(quoted(part or "") for part in (*parts, REGISTERED.partition(".")[2]))
        sql = f"SELECT {columns} FROM {table}"  # noqa: S608 - a name of the metadata, and the demo's own
        rows = databricks_sql.query(client, sql, warehouse, self.context.seconds_left)
        return f"{_are_equal(rows, truth)} rows are those of the source"

    # The demo's tables

    def _prepare(self) -> None:
        """
        Raises:
            NotTriedError: `no-package`.
            ImportError: `airflow_gddl.simulate` was deleted.
        """
        self._scratch = tempfile.TemporaryDirectory(prefix="gddl-check-")
        folder = DemoFolder(Path(self._scratch.name))
        folder.write_project()
        try:
            room = importlib.import_module(_SIMULATION)
            options = room.SourceOptions(
                landing=folder.landing, scale=SCALE, rounds=ROUNDS, seed=0, now=self.context.cli.now()
            )
            self._source = room.DemoSource(options)
        except ImportError as error:
            raise NotTriedError("no-package", f"{error}; {_INSTALL}") from error
        except FatalError as error:
            if error.code != "PACKAGE_MISSING":
                raise
            raise NotTriedError("no-package", f"{error.what}; {_INSTALL}") from error
        read = metadata_folder.read(self.context.cli.apart(), str(folder.metadata))
        self._tables = tuple(replace(spec, size=self.size) for spec in read.tables)

    @property
    def size(self) -> str:
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
                target = join(self.context.place.roots().landing, path.relative_to(root).as_posix())
                self.context.store.write(target, path.read_bytes())

    def _has_begun(self, lake: str) -> bool:
        """Whether a job has appended changes to a table of the lake."""
        roots, store = self.context.place.roots(lake), self.context.store
        logs = (join(Layout.of(roots, spec).changes, "_delta_log") for spec in self._tables)
        return any(next(iter(store.list(log)), None) is not None for log in logs)

    def _compare(self, lake: str, spec: TableSpec) -> int:
        """How many rows a replica has, which are those of the source.

        Raises:
            FoundError: they are not.
        """
        room = importlib.import_module(_TABLES)
        path = Layout.of(self.context.place.roots(lake), spec).replica
        try:
            replica = room.read_replica(path, self.context.store.options_of(path))
        except ImportError as error:
            raise NotTriedError("no-package", f"{error}; {_INSTALL}") from error
        truth = self._source.truth(spec.table)
        if found := room.differences(truth, replica, spec.keys):
            raise FoundError(f"{spec.table} in {lake} differs from the source: {found}")
        return int(truth.num_rows)

    # Jobs

    def job(
        self, options: JobOptions | None = None, *, lake: str = "lake", tables: Sequence[TableSpec] | None = None
    ) -> JobSpec:
        """The specification of a job of the demo's tables."""
        loaded = self.context.loaded
        return JobSpec(
            run_id=self.context.cli.run_id(),
            roots=self.context.place.roots(lake),
            tables=self._tables if tables is None else tuple(tables),
            tiers=loaded.tiers,
            options=options or JobOptions(),
        )

    @property
    def _is_remote(self) -> bool:
        return RUNNERS.get(self.context.loaded.runner).remote

    def _succeed(self, spec: JobSpec) -> tuple[JobResult, ...]:
        """
        Raises:
            FoundError: a table failed, or has no result.
        """
        outcome = self.outcome_of(spec)
        bad = [result for result in outcome.results if result.status == "failed"]
        if bad:
            error = bad[0].error
            said = f"{bad[0].table}: {error.message}" if error is not None else bad[0].table
            log = f"; log: {outcome.log}" if outcome.log else ""
            raise FoundError(f"{len(bad)} tables failed, {said}{log}", error.code if error is not None else "")
        if without := {table.table for table in spec.tables} - {result.table for result in outcome.results}:
            raise FoundError(f"the job ended without a result of {', '.join(sorted(without))}")
        return outcome.results

    def outcome_of(
        self, spec: JobSpec, listener: Listener | None = None, stop: Callable[[], bool] = lambda: False
    ) -> JobOutcome:
        """Run a job to its end.

        Args:
            stop: whether it is to be stopped, asked several times a second where it runs on this machine.

        Raises:
            Stopped: the command was stopped meanwhile.
            NotTriedError: `time`.
        """
        ours = _Signal()

        def tick() -> None:
            if self.context.seconds_left <= 0 or stop():
                ours.send()

        before = list(self.handles)
        outcome: JobOutcome = self._runner(spec, tick).run(spec, listener or Listener())
        if outcome.cancelled_by is not None and not ours.is_sent:
            raise Stopped(outcome.cancelled_by)  # a run elsewhere may go on: `close` stops it
        self.handles[:] = before  # those of this job have ended
        self.context.require_time()
        return outcome

    def _runner(self, spec: JobSpec, tick: Callable[[], None]) -> Any:
        loaded, cli = self.context.loaded, self.context.cli
        runner = make_runner(
            loaded.runner,
            RunnerSettings(
                command=cli.job_command,
                environ=cli.environ,
                declared=loaded.runners.get(loaded.runner, {}),
                submission=SubmissionContext(
                    task=TaskKey(pipeline="check", run=spec.run_id, task="run"), roots=spec.roots
                ),
                connections=self.context.connections,
                tick=tick,
            ),
        )
        if isinstance(runner, RemoteRunner):
            runner.first_pause, runner.sleep = self.context.poll_seconds, self._sleep
            runner.on_run = self.handles.append
        return runner

    def _sleep(self, seconds: float) -> None:
        self.context.require_time()
        time.sleep(max(0.0, min(seconds, self.context.seconds_left)))

    # Stopping

    def _cancel_here(self) -> str:
        if threading.current_thread() is not threading.main_thread():
            raise NotTriedError("not-from-here")
        listener = Listener()
        outcome = self.outcome_of(self.job(), listener, lambda: listener.heard)
        if outcome.cancelled_by is None or all(result.status == "succeeded" for result in outcome.results):
            raise NotTriedError("ended")
        codes = Counter(result.error.code for result in outcome.results if result.error is not None)
        if set(codes) != {"JOB_CANCELLED"}:
            raise FoundError(f"a job that was stopped ended with {dict(codes) or 'no error'}")
        return f"{codes.total()} of {len(outcome.results)} tables were left"

    def _cancel_there(self) -> str:
        platform = self._platform()
        if not self.handles:
            self._submit(self._request())
        for handle in list(self.handles):
            platform.cancel(handle)
        ends = [self._ended(platform, handle, self.context.seconds_left).state for handle in self.handles]
        if going := [state for state in ends if state not in ENDED]:
            raise FoundError(f"a run that was cancelled is {going[0]} at the time limit")
        self.handles.clear()
        if "cancelled" in ends:
            return "the run ended as cancelled"
        if "succeeded" in ends:
            raise NotTriedError("ended")
        raise FoundError(f"a run that was cancelled ended as {', '.join(ends)}")

    def _ended(self, platform: Platform, handle: Handle, seconds: float) -> RunStatus:
        """Status of a run when it has ended, or after so many seconds."""
        until = time.monotonic() + seconds
        for pause in pauses(self.context.poll_seconds):
            status = platform.poll(handle)
            if status.has_ended or time.monotonic() + pause > until:
                return status
            time.sleep(pause)
        raise AssertionError("pauses have no end")

    def _platform(self) -> Platform:
        loaded, cli = self.context.loaded, self.context.cli
        declared = loaded.runners.get(loaded.runner, {})
        return make_platform(loaded.runner, declared, cli.environ, self.context.connections)

    def _request(self) -> RunRequest:
        """A job of all tables, whose specification is in the lake."""
        spec = self.job()
        path = spec_path(spec.roots.lake, spec.run_id)
        self.context.store.create(path, to_document(spec).encode())
        tier = self.context.loaded.tiers.get(self.size, TierSpec())
        return RunRequest(run_id=spec.run_id, spec=path, size=self.size, tier=tier, token=f"gddl-check-{spec.run_id}")

    def _submit(self, request: RunRequest) -> None:
        handle = self._platform().submit(request)
        if handle not in self.handles:
            self.handles.append(handle)


def _are_equal(rows: Sequence[Row], truth: Any) -> int:
    """How many rows an engine gave, which are those of the source, whose columns are all text.

    Raises:
        FoundError: they are not.
    """
    wanted = [tuple(row.values()) for row in truth.to_pylist()]
    if sorted(rows, key=str) != sorted(wanted, key=str):
        raise FoundError(f"{len(rows)} rows, of which {len(set(rows) & set(wanted))} of {len(wanted)} are right")
    return len(rows)


def _first_error(outcome: JobOutcome) -> str:
    """What the first table that failed says; empty where none did."""
    return next((f": {result.error.message}" for result in outcome.results if result.error is not None), "")


@dataclass
class _Signal:
    """Stops a job of this process as Ctrl-C would, once."""

    is_sent: bool = False

    def send(self) -> None:
        # Without a handler, as outside the main thread, the signal would end this process.
        if not self.is_sent and signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, None):
            self.is_sent = True
            os.kill(os.getpid(), signal.SIGTERM)


def _kill_job() -> None:
    """Kill the job of this process, with all that it started, and no other child."""
    mine = ["--parent", str(os.getpid())]
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            words = child.cmdline()
            if mine in (words[at : at + 2] for at in range(len(words))):
                for one in (child, *child.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        one.kill()


def probes(checks: JobChecks) -> Mapping[str, Callable[[CheckContext], str]]:
    """The checks by name, in their order."""
    return {
        "job.load": lambda _: checks.load(),
        "job.once": lambda _: checks.once(),
        "job.cancel": lambda _: checks.cancel(),
        "job.killed": lambda _: checks.killed(),
        "job.resume": lambda _: checks.resume(),
        "tables.verify": lambda _: checks.verify(),
        "tables.rows": lambda _: checks.rows(),
        "tables.spark": lambda _: checks.spark(),
        "catalog.register": lambda _: checks.register(),
        "tables.athena": lambda _: checks.athena(),
        "tables.databricks_sql": lambda _: checks.databricks_sql(),
    }
