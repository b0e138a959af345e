"""Debezium as a dialect."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.debezium import DebeziumOptions
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.file_names import Names
from airflow_gddl.contract.path_format import PathFormat
from airflow_gddl.stores.inflating import GZIP_MAGIC, Inflating
from spark_jobs.dialects.base import Dialect, InputOpener
from spark_jobs.dialects.debezium import names
from spark_jobs.dialects.debezium.events import read_events
from spark_jobs.dialects.debezium.json_table import table_of
from spark_jobs.dialects.debezium.parquet_table import read_parquet
from spark_jobs.dialects.debezium.snapshots import marks_of, with_other_places
from spark_jobs.dialects.debezium.technical import (
    CARRIED,
    OP,
    SEQUENCE,
    TIME,
    Translated,
    with_epochs,
    with_keys,
    with_other_epochs,
)
from spark_jobs.dialects.probe import reading, require_bounded
from spark_jobs.dialects.probed import Probed
from spark_jobs.dialects.window import EVERYTHING, Window
from spark_jobs.plan.file_times import FileTimes
from spark_jobs.plan.files import PlannedFile
from spark_jobs.plan.snapshots import KnownSnapshots

_PARQUET = b"PAR1"


@dataclass(frozen=True)
class DebeziumDialect(Dialect):
    """See `Dialect`. All files are change files: rows of snapshots have a position in the order of changes too."""

    options: DebeziumOptions

    title = "a Debezium sink"
    operations = "c, u, d, r; a truncate (t) empties nothing here"
    malformed = (
        "not a change event of Debezium: no op with the before or after that it needs, "
        "or half of a surrogate pair in a name or a nested value"
    )
    total_order = (SEQUENCE,)
    of_one_length = True
    log_positions = True
    sends_again = True
    carried = CARRIED

    def classify(self, relative_path: str) -> Names | None:
        """By time first where folders state one, so that a partial run leaves newer files for later."""
        found = names.classify(relative_path)
        if found is None or self._format is None:
            return found
        kind, file_format, order = found
        return kind, file_format, (self._format.time(relative_path) or "", *order)

    def is_temporary(self, relative_path: str) -> bool:
        return names.is_beside(relative_path)

    @property
    def op_column(self) -> str:
        return OP

    @property
    def commit_times(self) -> Sequence[str]:
        return (TIME,)

    @property
    def times(self) -> FileTimes:
        return FileTimes(self._format)

    def file_order(self, path: str) -> str | None:
        return names.offset_order(path)

    def reordered(self, rows: pa.Table) -> pa.Table:
        return with_other_epochs(rows, self.options.log_began)

    def replaced_snapshots(self, known: KnownSnapshots) -> KnownSnapshots:
        return with_other_places(known, self.options.log_began)

    def windows(self, cursor: str, since: datetime, until: datetime) -> tuple[Window, ...]:  # noqa: ARG002 - the port's
        """Time folders from `since` on, and files next to them: all names except those of earlier folders."""
        if self._format is None:
            return EVERYTHING
        before, start = self._format.first, self._format.before(since)
        return (Window(end_before=before), Window(start_after=start)) if before < start else EVERYTHING

    @cached_property
    def _format(self) -> PathFormat | None:
        text = self.options.path_format
        try:
            return None if text is None else PathFormat.parsed(text)
        except ValueError as error:
            what, remedy = f"options.path_format {text!r}: {error}", "correct the row"
            raise FatalError("PATH_FORMAT_INVALID", what, where=self.spec.table, remedy=remedy) from error

    def probe(self, storage: InputOpener, file: PlannedFile) -> Probed:
        with reading(file):
            with storage.open_input(file.path) as stream:
                data = stream.read()
            if data[:2] == GZIP_MAGIC:
                data = Inflating(io.BytesIO(data), self.bounds.inflated(file.size), file.path).readall()
            images = self.spec.before_image_prefix
            if data[:4] == _PARQUET:
                require_bounded(io.BytesIO(data), file, self.bounds, pq.read_metadata(io.BytesIO(data)))
                return self._probed(file, read_parquet(data, self.options, self.spec.keys, images))
            events = read_events(data, self.spec.keys)
            return self._probed(file, table_of(events, self.options, images), events.malformed)

    def _probed(self, file: PlannedFile, rows: Translated, malformed: pa.Array | None = None) -> Probed:
        table = with_epochs(with_keys(rows.table, self.spec.keys), self.options.log_began)
        marks = None if self.options.snapshots == "merge" else marks_of(table, rows.sources, file.path)
        return Probed.of_table(file, table, malformed, rows.stated, marks)
