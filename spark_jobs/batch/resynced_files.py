"""Change files with rows that a job has read from the source, or keys that the source lacks."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.extensions import DmsOptions, date_folder
from airflow_gddl.contract.file_names import RESYNCED, change_time, digits_of, moment
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.sql_types import SqlType
from spark_jobs.batch.table_run import TableRun
from spark_jobs.plan.planned_batch import TableState


@dataclass
class ResyncedFiles:
    """Writes such files, which come after all that were there in the order of names.

    Attributes:
        last: time of the last file, as its name states it.
        paths: of the files that were written.
    """

    run: TableRun
    last: datetime
    paths: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, run: TableRun, state: TableState) -> ResyncedFiles:
        newest = moment(change_time(state.cursor or "") or "")
        return cls(run, datetime.min.replace(tzinfo=UTC) if newest is None else newest.replace(tzinfo=UTC))

    def write(self, table: pa.Table) -> None:
        """Write a file of rows with their operation and their place in the order of changes."""
        content = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({RESYNCED.encode(): b"1"}), content, compression="zstd")
        runtime = self.run.runtime
        while True:
            self.last = max(runtime.clock().astimezone(UTC), self.last + timedelta(milliseconds=1))
            digits = digits_of(self.last)
            folder = join(self.run.layout.landing, self._folder())
            path = join(folder, f"{digits[:8]}-{digits[8:]}-{RESYNCED}.parquet")
            if runtime.storage.create_once(path, content.getvalue()):
                break
        self.paths.append(path)

    def _folder(self) -> str:
        options = self.run.dialect.options
        if not isinstance(options, DmsOptions):
            return ""
        return date_folder(options.date_partition, options.date_delimiter, self.last)


def key_value(value: Any, kind: SqlType) -> Any:
    """A value of a key as `StoredRows.live_rows` gives it: times may be texts; with a zone they are in UTC."""
    name = str(kind)
    if isinstance(value, str) and name in ("timestamp", "timestamp_ntz"):
        value = datetime.fromisoformat(value)
    elif isinstance(value, str) and name == "date":
        value = date.fromisoformat(value)
    return value.replace(tzinfo=UTC) if name == "timestamp" and value.tzinfo is None else value
