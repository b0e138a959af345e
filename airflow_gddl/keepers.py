"""What keeps a continuous pipeline's job on Airflow's side, in the worker and in the triggerer alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_gddl import configuration
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.standing import StandingOrder
from airflow_gddl.landing.hint_book import HintBook
from airflow_gddl.landing.keeping import Keeping
from airflow_gddl.landing.loading import Hearer
from airflow_gddl.landing.standing import Standing
from airflow_gddl.operators.reporting import Logger, Reporter
from airflow_gddl.runners.answers import Answers
from airflow_gddl.snapshot import PipelineDocument
from airflow_gddl.state.recording import StateRecorder
from airflow_gddl.stores import open_store


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Whose job it is.

    Attributes:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        run, task: Airflow's ids.
        job: run id of the job elsewhere; empty where it runs beside its task.
    """

    metadata: str
    pipeline: str
    run: str
    task: str
    job: str = ""


def keeping_of(
    kept: Kept, document: PipelineDocument, environ: Mapping[str, str], hearer: Hearer, alert: Callable[[], None]
) -> Keeping:
    """
    Args:
        document: the pipeline as it is now.
    """
    roots, pipeline = document.roots, document.pipeline
    return Keeping(
        standing=standing_of(kept, document, environ),
        state=StateRecorder(roots, pipeline.dag_id, pipeline.tables, environ=environ),
        book=HintBook(roots, pipeline.dag_id, environ=environ),
        hearer=hearer,
        run=kept.run,
        task=kept.task,
        alert=alert,
    )


def standing_of(kept: Kept, document: PipelineDocument, environ: Mapping[str, str]) -> Standing:
    return Standing(document.roots, kept.pipeline, lambda: order_now(kept), environ)


def order_now(kept: Kept) -> StandingOrder | None:
    """As the metadata has it; without tables when it has no such pipeline any more, or one that is not continuous."""
    snapshot = configuration.snapshot(kept.metadata)
    if snapshot.generation is None:
        return None
    document = snapshot.pipeline(kept.pipeline)
    if document is None or document.pipeline.timing.kind != "continuous":
        return StandingOrder(tables=())
    return StandingOrder(tables=document.specs, tiers=document.tiers)


@dataclass
class RemoteKeeper:
    """Beside a job elsewhere: fetches its results from the lake."""

    keeping: Keeping
    answers: Answers
    log: Logger

    def tick(self) -> None:
        """To be called now and then; a store that is silent for a moment is asked again at the next call."""
        try:
            for result in self.answers.new():
                self.keeping.on_result(result)
            self.keeping.tick()
        except GddlError as error:
            self.log.warning("the state of %s could not be kept: %s", self.keeping.standing.name, error)


def remote_keeper(kept: Kept, lake: str, environ: Mapping[str, str], log: Logger) -> RemoteKeeper | None:
    """Null where this machine has no such pipeline.

    Raises:
        GddlError: as `Store`; `CACHE_UNUSABLE`.
    """
    document = configuration.snapshot(kept.metadata).pipeline(kept.pipeline)
    if document is None:
        return None
    reporter = Reporter(log, {spec.table: spec for spec in document.specs})
    keeping = keeping_of(kept, document, environ, reporter, lambda: None)
    return RemoteKeeper(keeping, Answers(open_store(lake, environ), lake, kept.job), log)
