"""A table of another job in a bucket: beside it, taken over in place, and given back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Adopt, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.job.job_tables import run_job
from tests.harness.asked import options_of
from tests.s3 import delivery
from tests.s3.conftest import Place

Rows = list[tuple[int, str, int | None]]


@dataclass(frozen=True)
class Table:
    place: Place

    @property
    def path(self) -> str:
        return f"{self.place.roots.lake}/s/t"

    @property
    def options(self) -> dict[str, str]:
        return {**(Storage(self.place.environ).options_of(self.path) or {}), "conditional_put": "etag"}

    def write(self, rows: Rows) -> None:
        """As the other job does."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("seq", pa.int64())])
        table = pa.table(columns, schema=schema)
        write_deltalake(self.path, table, mode="overwrite", storage_options=self.options)

    def read(self) -> dict[int, str]:
        rows = pa.table(self.opened().scan()).to_pylist()
        return {row["id"]: row["v"] for row in rows}

    def opened(self) -> DeltaTable:
        return DeltaTable(self.path, storage_options=self.options)

    def change(self, number: int, *rows: tuple[str, int, str | None]) -> None:
        ops, keys, values = zip(*rows, strict=True)
        sequence = [10 * number + at for at in range(len(rows))]
        columns = {"Op": list(ops), "seq": sequence, "id": list(keys), "v": list(values)}
        delivery.put(self.place, "t", f"20240101-{number:09d}", columns)

    def done(self, options: JobOptions | None = None) -> JobResult:
        given = delivery.job(self.place, ["t"])
        specs = tuple(replace(spec, settle="0s") for spec in given.tables)
        given = replace(given, tables=specs, options=options or JobOptions())
        runtime = Runtime(storage=Storage(self.place.environ), spark=NoSpark(), environ=self.place.environ)
        (outcome,) = run_job(given, runtime, lambda _: None)
        assert outcome.result.error is None, outcome.result.error
        return outcome.result

    def verified(self) -> None:
        assert self.done(JobOptions(action=Verify())).details["verdict"] == "equal"


def test_table_is_ours_then_given_back(place: Place) -> None:
    table = Table(place)
    delivery.put(place, "t", "LOAD00000001", {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    table.change(1, ("U", 1, "new"), ("D", 2, None), ("I", 4, "d"))
    table.write([(1, "new", 10), (3, "c", None), (4, "d", 12)])
    table.change(2, ("U", 3, "newer"), ("D", 4, None))
    table.write([(1, "new", 10), (3, "newer", 20)])
    before = set(table.opened().file_uris())
    table.done(options_of(action="adopt", files_until=datetime.now(UTC).isoformat()))
    assert set(table.opened().file_uris()) == before
    table.done()
    assert table.done(JobOptions(action=Verify(against="s.t"))).details["verdict"] == "equal"
    table.verified()
    table.change(3, ("I", 5, "e"))
    table.done()
    assert table.read() == {1: "new", 3: "newer", 5: "e"}
    table.verified()
    table.done(JobOptions(action=Adopt(mode="release", confirmed=True)))
    assert [field.name for field in table.opened().schema().fields] == ["id", "v", "seq"]
    assert table.read() == {1: "new", 3: "newer", 5: "e"}
    assert not delivery.objects(place, "lake/s/t__changes")
