"""AWS DMS: rows as parquet or CSV with an operation column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from airflow_gddl.contract.dms import COMMIT_TIMES, TOTAL_ORDER, DmsOptions
from airflow_gddl.contract.dms_names import classify
from airflow_gddl.contract.file_names import Names
from spark_jobs.dialects.base import Dialect, InputOpener
from spark_jobs.dialects.dms_windows import windows
from spark_jobs.dialects.probe import probe
from spark_jobs.dialects.probed import Probed
from spark_jobs.dialects.window import Window
from spark_jobs.plan.files import PlannedFile


@dataclass(frozen=True)
class DmsDialect(Dialect):
    """See `Dialect`."""

    options: DmsOptions

    title = "DMS"
    total_order = TOTAL_ORDER

    def classify(self, relative_path: str) -> Names | None:
        return classify(relative_path)

    def probe(self, storage: InputOpener, file: PlannedFile) -> Probed:
        return probe(storage, file, self.options)

    @property
    def op_column(self) -> str:
        return self.options.op_column

    @cached_property
    def commit_times(self) -> Sequence[str]:
        named = self.options.timestamp_column
        return ((named,) if named else ()) + COMMIT_TIMES

    @property
    def missing_op(self) -> Literal["quarantine", "insert"]:
        return self.options.missing_op

    def is_technical(self, column: str) -> bool:
        return column.lower().startswith("ar_h_")

    def windows(self, cursor: str, since: datetime, until: datetime) -> tuple[Window, ...]:
        return windows(self.options, cursor, since, until)
