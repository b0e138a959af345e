"""A load uses the rows that its sensor used, or newer ones, never older ones."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_gddl import configuration
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.reporting.results import Logger
from airflow_gddl.runtime.landing.work import PipelineWork, by_rows, differing_rows
from airflow_gddl.runtime.snapshot import PipelineDocument

_SHOWN = 5


def agreed(
    metadata: str, document: PipelineDocument, work: PipelineWork, log: Logger
) -> tuple[PipelineDocument, PipelineWork]:
    """Return the pipeline and the work for the same rows; read the metadata again if they differ.

    Args:
        metadata: folder or `s3://` URL.
        document: the pipeline as this machine has it.
        work: as decided by the sensor, possibly on another machine.

    Raises:
        RetriableError: `METADATA_OUTDATED`: this machine has older rows than the sensor had.
    """
    if not differing_rows(work, document.specs):
        return document, work
    document = configuration.snapshot(metadata).renewed().pipeline(document.pipeline.dag_id) or document
    found = differing_rows(work, document.specs)
    if not found:
        return document, work
    if document.metadata_at < work.metadata_at:
        remedy = "the task is retried; if that does not help, check how metadata changes reach this machine"
        what = f"the metadata on this machine is older than the metadata that the sensor used: {_named(found)}"
        raise RetriableError("METADATA_OUTDATED", what, where=metadata, remedy=remedy)
    log.warning("the metadata changed after the sensor ran; the newer rows are used: %s", _named(found))
    return document, by_rows(work, document.specs)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
