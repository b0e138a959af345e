"""Monitor of a continuous pipeline's job on the Airflow side, in the worker and in the triggerer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.spec import DesiredState
from airflow_gddl.reporting.alerting import notify
from airflow_gddl.reporting.results import Logger, Reporter
from airflow_gddl.runners.interface import Listener
from airflow_gddl.runners.remote import ResultReader
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.continuous_job import ContinuousJobMonitor, DesiredStateKeeper
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.stores import open_store


@dataclass(frozen=True, kw_only=True)
class MonitoredPipeline:
    """Owner of the job.

    Attributes:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        run, task: Airflow's ids.
        job: run id of the remote job; empty for a local job.
    """

    metadata: str
    pipeline: str
    run: str
    task: str
    job: str = ""


def monitor_of(
    kept: MonitoredPipeline,
    document: PipelineDocument,
    environ: Mapping[str, str],
    listener: Listener,
    context: Context,
    log: Logger,
) -> ContinuousJobMonitor:
    """
    Args:
        document: the pipeline as it is now.
        context: for the notifiers.
    """
    roots, pipeline = document.roots, document.pipeline

    def alert() -> None:
        """Send alerts for the pipeline's tables by the current metadata; never raises."""
        try:
            current = configuration.compiled_metadata(kept.metadata).pipeline(kept.pipeline)
        except GddlError as error:
            log.warning("alerts could not be sent: %s", error)
            return
        if current is not None:
            notify(context, current, log, environ)

    return ContinuousJobMonitor(
        standing=DesiredStateKeeper(roots, kept.pipeline, lambda: current_desired_state(kept), environ),
        state=StateRecorder(roots, pipeline.dag_id, pipeline.tables, environ=environ),
        listener=listener,
        run=kept.run,
        task=kept.task,
        alert=alert,
    )


def current_desired_state(kept: MonitoredPipeline) -> DesiredState | None:
    """The desired state by the metadata; without tables when the pipeline is gone, retired or no longer continuous."""
    compiled = configuration.compiled_metadata(kept.metadata)
    if compiled.generation is None:
        return None
    document = compiled.pipeline(kept.pipeline)
    if document is None or document.pipeline.timing.kind != "continuous" or document.pipeline.is_retired:
        return DesiredState(tables=())
    return desired_state(document)


def desired_state(document: PipelineDocument) -> DesiredState:
    return DesiredState(tables=document.specs, tiers=document.tiers, catalogs=document.catalogs, access=document.access)


@dataclass
class RemoteJobMonitor:
    """Monitors a remote job: passes new rows to it, reads its results from the lake, sends alerts.

    Attributes:
        context: for the notifiers.
    """

    kept: MonitoredPipeline
    lake: str
    environ: Mapping[str, str]
    log: Logger
    context: Context
    _open: tuple[ContinuousJobMonitor, ResultReader] | None = None

    def tick(self) -> None:
        """Call periodically. If the store does not respond, or the metadata lacks the pipeline, the next call retries;
        the run is watched in any case."""
        try:
            self._open = self._open or self._opened()
            if self._open is not None:
                monitor, answers = self._open
                for result in answers.new():
                    monitor.on_result(result)
                monitor.tick()
        except GddlError as error:
            self.log.warning("the state of %s could not be kept: %s", self.kept.pipeline, error)

    def _opened(self) -> tuple[ContinuousJobMonitor, ResultReader] | None:
        """Null if this machine lacks the pipeline; then new rows wait for the next job."""
        kept = self.kept
        document = configuration.compiled_metadata(kept.metadata).pipeline(kept.pipeline)
        if document is None:
            return None
        reporter = Reporter(self.log, {spec.table: spec for spec in document.specs})
        monitor = monitor_of(kept, document, self.environ, reporter, self.context, self.log)
        return monitor, ResultReader(open_store(self.environ), self.lake, kept.job)
