"""A dialect of its own, as docs/extending.md shows it: text files of `operation|number|id|value`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from airflow_gddl.contract.dialects import Registered
from airflow_gddl.contract.file_names import Names
from spark_jobs.dialects.base import Dialect, Opens
from spark_jobs.dialects.probe import reading
from spark_jobs.dialects.probed import Probed
from spark_jobs.plan.files import PlannedFile

_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, kw_only=True)
class PipeOptions:
    """Options of the dialect `pipes`."""

    __pydantic_config__ = _STRICT

    separator: str = "|"
    types: Mapping[str, str] = field(default_factory=dict)
    lookback: str = "7d"
    missing_folder: Literal["report", "empty"] = "report"
    verify_connection: str | None = None


@dataclass(frozen=True)
class PipeDialect(Dialect):
    """See `Dialect`."""

    options: PipeOptions

    title = "our pipes"
    operations = "+, -"
    total_order = ("pipe_number",)

    @property
    def op_column(self) -> str:
        return "pipe_op"

    def classify(self, relative_path: str) -> Names | None:
        return ("change", "csv", (relative_path,)) if relative_path.endswith(".pipe") else None

    def probe(self, storage: Opens, file: PlannedFile) -> Probed:
        with reading(file):
            with storage.open_input(file.path) as stream:
                lines = stream.read().decode().splitlines()
            rows = [line.split(self.options.separator) for line in lines]
            operations = {"+": "I", "-": "D"}
            table = pa.table({
                "pipe_op": [operations.get(row[0], row[0]) for row in rows],
                "pipe_number": [int(row[1]) for row in rows],
                "id": [int(row[2]) for row in rows],
                "value": [row[3] for row in rows],
            })  # fmt: skip
            return Probed.of_table(file, table)


REGISTERED = Registered("tests.debezium.third:PipeOptions", "tests.debezium.third:PipeDialect")
