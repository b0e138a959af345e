"""Look and decide: the one place where a pipeline's landing folders and hints are read together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.landing import hints
from airflow_gddl.landing.asked import Asked
from airflow_gddl.landing.looking import look
from airflow_gddl.landing.work import Seen, Work, decide
from airflow_gddl.snapshot import PipelineDocument
from airflow_gddl.stores import Store, open_store


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a look is made for.

    Attributes:
        run: Airflow's run id.
        now: ISO 8601 UTC with microseconds.
        since: table to the first look of this run that held it back.
    """

    run: str
    now: str
    asked: Asked = field(default_factory=Asked)
    since: Mapping[str, str] = field(default_factory=dict)


def observe(document: PipelineDocument, question: Question, environ: Mapping[str, str] = os.environ) -> Work:
    """List, read the hints, decide. Blocks on the store.

    Args:
        environ: tells how S3 is reached.

    Raises:
        RetriableError, FatalError: as `Store`.
        MetadataError: `REQUEST_INVALID`.
    """
    landing, lake = (open_store(root, environ) for root in (document.roots.landing, document.roots.lake))
    others = {other.table: other.dag_id for other in document.dependencies if other.dag_id is not None}
    tables = (*document.pipeline.tables, *others)
    seen = Seen(
        looked_at=question.now,
        looks=look(landing, document.roots.landing, tables, question.asked.window),
        hints=hints.read(lake, document.roots.lake, document.pipeline.dag_id),
        others={dag_id: hints.read(lake, document.roots.lake, dag_id) for dag_id in sorted(set(others.values()))},
        exists=lambda spec: has_replica(lake, document, spec),
        since=question.since,
    )
    return decide(document, question.asked, question.run, seen)


def has_replica(lake: Store, document: PipelineDocument, spec: TableSpec) -> bool:
    log = join(Layout.of(document.roots, spec).replica, "_delta_log")
    return next(iter(lake.list(log)), None) is not None
