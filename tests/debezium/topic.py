"""A table `shop.t` of Debezium's files, as sinks land them from a topic, and whole runs over it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable
from tests.spark.breaking import Break, Breaker


class Topic(LakeTable):
    """The table and its landing folder."""

    def __init__(self, engine: LocalPort, root: Path, **row: Any) -> None:
        spec = decode(TableSpec, {"table": "shop.t", "keys": ["id"], "dialect": "debezium", **row})
        super().__init__(Lake(root, port=engine.everywhere()), with_expressions(spec))
        self._offset = 0

    def with_row(self, **row: Any) -> Topic:
        """The same under another row."""
        other = copy(self)
        other.spec = with_expressions(decode(TableSpec, {**plain(self.spec), **row}))
        return other

    def land_in(self, partition: int, offset: int, content: str | bytes, ending: str = "json") -> str:
        """Under the name that Confluent's sink would give it."""
        path = self.landing / f"partition={partition}/shop.t+{partition}+{offset:010d}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def land(self, content: str | bytes, ending: str = "json") -> str:
        """The next file of the first partition."""
        self._offset += 100
        return self.land_in(0, self._offset - 100, content, ending)

    def empty(self) -> None:
        """Move all files out of the landing folder."""
        for path in self.landing.rglob("*.*"):
            path.unlink()

    def break_off(self, step: str) -> None:
        """A run that dies once the step is done."""
        breaker = Breaker({self.spec.table: Break(step)})
        result = self.lake.result(self.spec, observe=breaker)
        assert (result.status, breaker.done) == ("failed", {self.spec.table})

    def replica(self, *columns: str) -> list[tuple[Any, ...]]:
        return self.values("replica", *columns)

    def history(self, *columns: str) -> list[tuple[Any, ...]]:
        return self.values("history", *columns)

    def errors(self) -> list[dict[str, Any]]:
        return sorted(self.rows("errors"), key=lambda row: (row["source_file"], row["position"] or 0))

    def change_rows(self) -> list[dict[str, Any]]:
        return sorted(self.rows("changes"), key=lambda row: row["_gddl"]["position"])


def warnings_of(result: JobResult) -> list[str]:
    return sorted(warning.code for warning in result.warnings)


def enveloped(*events: Mapping[str, Any]) -> bytes:
    """Parquet as Confluent's sink writes it."""
    return parquet(pa.Table.from_pylist([dict(found) for found in events]))


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
