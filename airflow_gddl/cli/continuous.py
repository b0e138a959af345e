"""`gddl run --continuous`: a continuous job on this machine that follows metadata changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_gddl.cli import metadata
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.display import Lines
from airflow_gddl.cli.exits import of_outcome
from airflow_gddl.cli.job import Done, Request, recorder_of, runner_of
from airflow_gddl.contract.desired_state import DesiredState
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.source_access import of_tables
from airflow_gddl.contract.spec import Continuous, JobOptions, JobSpec, TableSpec
from airflow_gddl.runtime.landing.desired_state import DesiredStateKeeper
from airflow_gddl.runtime.runners.base import Listener, ProgressEvent
from airflow_gddl.runtime.snapshot.signature import sign
from airflow_gddl.runtime.state.recording import WRITE_EVERY, StateRecorder

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import Catalog

_HERE = ("local", "spark_submit")


def keep(cli: CliContext, request: Request) -> Done:
    """Load the request's tables until Ctrl-C or SIGTERM, which end the job after its current batch.

    Raises:
        GddlError: nothing was run.
    """
    catalog = metadata.read(cli, request.metadata)
    signature = sign(request.metadata, cli.environ).text
    if catalog.runner not in _HERE:
        remedy = "run it under Airflow, which watches remote jobs, or set GDDL_RUNNER=local"
        what = f"runner {catalog.runner} can't be followed from a terminal"
        raise MetadataError("CONTINUOUS_REFUSED", what, where="--continuous", remedy=remedy)
    tables, bad = metadata.choose(cli, catalog, request.tables, request.metadata)
    if not tables:
        raise MetadataError("NO_TABLES", "no enabled table in the metadata", where=request.metadata, remedy="add a row")
    run_id = cli.run_id()
    standing = DesiredStateKeeper(
        catalog.roots, f"by-hand-{run_id}", _Followed(cli, request, signature).order, cli.environ
    )
    standing.put(_desired(catalog, tables))
    spec = JobSpec(
        run_id=run_id,
        roots=catalog.roots,
        tables=tables,
        tiers=catalog.tiers,
        catalogs=catalog.catalogs,
        access=of_tables(catalog.access, tables),
        options=JobOptions(continuous=Continuous(folder=standing.folder)),
    )
    recorder = recorder_of(cli, catalog)
    # One line for each turn, since a continuous job has no end for a progress bar.
    listener = _Live(recorder, Lines(cli.screen, as_json=request.as_json))
    try:
        cli.screen.warn("the tables are loaded until Ctrl-C", "dim")
        outcome = runner_of(cli, catalog, run_id, _Ticks(cli, standing, recorder)).run(spec, listener)
    finally:
        recorder.flush()
        standing.remove()
    if outcome.exit_status in (0, 1):  # a stop signal is the regular end
        outcome = replace(outcome, cancelled_by=None)
    return Done(outcome=outcome, exit_status=of_outcome(outcome, bad_rows=bool(bad)))


def _desired(catalog: Catalog, tables: tuple[TableSpec, ...]) -> DesiredState:
    access = of_tables(catalog.access, tables)
    return DesiredState(tables=tables, tiers=catalog.tiers, catalogs=catalog.catalogs, access=access)


@dataclass
class _Followed:
    """The metadata, read again when it changed; with invalid rows the job keeps its tables."""

    cli: CliContext
    request: Request
    signature: str

    def order(self) -> DesiredState | None:
        signature = sign(self.request.metadata, self.cli.environ).text
        if signature == self.signature:
            return None
        self.signature = signature
        catalog = metadata.read(self.cli, self.request.metadata)
        tables, bad = metadata.choose(self.cli, catalog, self.request.tables, self.request.metadata)
        return None if bad else _desired(catalog, tables)


@dataclass
class _Ticks:
    """Monitoring of the job."""

    cli: CliContext
    standing: DesiredStateKeeper
    recorder: StateRecorder
    _flushed: float = 0.0

    def __call__(self) -> None:
        self.standing.refresh()
        now = self.cli.now().timestamp()
        if now - self._flushed >= WRITE_EVERY:
            self._flushed = now
            self.recorder.flush()


@dataclass
class _Live:
    """Records results in the state, except idle polls."""

    recorder: StateRecorder
    shown: Listener

    def on_progress(self, event: ProgressEvent) -> None:
        self.shown.on_progress(event)

    def on_result(self, result: JobResult) -> None:
        self.recorder.take(result)
        if result.status != "skipped":
            self.shown.on_result(result)
