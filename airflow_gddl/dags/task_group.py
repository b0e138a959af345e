"""Loads of selected tables as a task group of a user's own DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import TaskGroup

from airflow_gddl import configuration
from airflow_gddl.dags.problems import MetadataProblems, problems_text
from airflow_gddl.operators.tables import GddlLoadOperator
from airflow_gddl.runtime.landing.run_request import loaded_by, requested


class GddlTaskGroup(TaskGroup):
    """A `GddlLoadOperator` for each selected table, or for each DAG that loads some of them otherwise.

    The metadata decides which tasks there are: a new table that is selected is a new version of the DAG.

    Args:
        tables, select, exclude: see `GddlLoadOperator`; not templated, since they are read when the DAG is parsed.
        metadata: folder or `s3://` URL; null: see `configuration.metadata_place`.
        beside: the DAG file, for finding the folder.
        by_table: a task and a job for each table; false: a task for each DAG, whose tables share a job, in the order of
            `depends_on`.
        operator_args: arguments of every `GddlLoadOperator`.

    Raises:
        MetadataProblems: the metadata could never be read.
        MetadataError: `REQUEST_INVALID`: no table; `SELECTOR_INVALID`, `TABLE_AMBIGUOUS`.
    """

    def __init__(  # noqa: PLR0913 - what a DAG file may say
        self,
        group_id: str = "gddl",
        *,
        tables: Sequence[str] = (),
        select: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: str | Path | None = None,
        beside: str | Path | None = None,
        by_table: bool = True,
        operator_args: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(group_id=group_id, **kwargs)
        place = configuration.metadata_place(metadata, beside)
        snapshot = configuration.snapshot(place, parsing=True)
        directory = snapshot.directory()
        if directory is None:
            raise MetadataProblems(f"\n{problems_text(snapshot)}")
        homes = loaded_by(requested(directory, tables, select, exclude), directory)
        parts: dict[str, list[str]] = {}
        for table, dag_id in homes.items():
            parts.setdefault(table if by_table else dag_id, []).append(table)
        with self:
            for task_id, names in parts.items():
                GddlLoadOperator(task_id=task_id, tables=names, metadata=place, **(operator_args or {}))
