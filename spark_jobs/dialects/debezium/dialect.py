"""Debezium as a dialect."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_gddl.contract.debezium import DebeziumOptions
from airflow_gddl.contract.file_names import Names
from spark_jobs.dialects.base import Dialect, Opens
from spark_jobs.dialects.debezium import names
from spark_jobs.dialects.debezium.events import read_events
from spark_jobs.dialects.debezium.json_table import table_of
from spark_jobs.dialects.debezium.parquet_table import read_parquet
from spark_jobs.dialects.debezium.technical import CARRIED, OP, SEQUENCE, TIME, with_keys
from spark_jobs.dialects.probe import reading
from spark_jobs.dialects.probed import Probed
from spark_jobs.plan.files import PlannedFile

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


@dataclass(frozen=True)
class DebeziumDialect(Dialect):
    """See `Dialect`. All files are change files: rows of snapshots have a place in the order of changes too."""

    options: DebeziumOptions

    title = "a Debezium sink"
    operations = "c, u, d, r; a truncate (t) empties nothing here"
    malformed = "not a change event of Debezium: no op with the before or after that it needs"
    total_order = (SEQUENCE,)
    of_one_length = True
    carried = CARRIED

    def classify(self, relative_path: str) -> Names | None:
        return names.classify(relative_path)

    def is_temporary(self, relative_path: str) -> bool:
        return names.is_beside(relative_path)

    @property
    def op_column(self) -> str:
        return OP

    @property
    def commit_times(self) -> Sequence[str]:
        return (TIME,)

    def probe(self, storage: Opens, file: PlannedFile) -> Probed:
        with reading(file):
            with storage.open_input(file.path) as stream:
                data = stream.read()
            data = gzip.decompress(data) if data[:2] == _GZIP else data
            images = self.spec.before_image_prefix
            if data[:4] == _PARQUET:
                return Probed.of_table(file, with_keys(read_parquet(data, self.options, images), self.spec.keys))
            events = read_events(data)
            rows = table_of(events, self.options, images)
            return Probed.of_table(file, with_keys(rows, self.spec.keys), events.malformed)
