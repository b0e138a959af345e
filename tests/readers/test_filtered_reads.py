"""A filter finds the same rows in every kind of table, whichever reader asks and whatever the table went through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Maintain, Rebuild
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable, read_table, spec_of
from tests.harness.landing import write
from tests.readers.probes import Probe, probes
from tests.readers.reading import READERS, Reader, by_spark
from tests.readers.wide_table import SPEC, Row, land

ALIKE = {f"n{number:02d}" for number in range(1, 23)}
"""Columns that no reader is asked of: `n00` and `n23` stand for them."""
DOTTED = {"nested.a": pa.int32()}
"""A column whose name is the path of a field."""
KINDS = ("replica", "changes", "history", "errors", "tombstones")
pytestmark = pytest.mark.timeout(900)


class Filtered(LakeTable):
    """The wide table, which readers filter."""

    def wrong(self) -> list[str]:
        """Each filter that some reader answers otherwise than the rows read whole do.

        Of Spark's tables two are asked, of which one reads statistics by pyarrow and one by Delta's kernel; the last
        test asks all.
        """
        asked = {name: READERS[name] for name in ("pyarrow dataset", "QueryBuilder")} if self.is_spark else READERS
        return list(self.each_wrong(asked))

    def wrong_with_spark(self) -> list[str]:
        """The same with Spark as a reader, where the engine is."""
        return list(self.each_wrong({**READERS, "Spark": by_spark(self._port)} if self.is_spark else READERS))

    def wrong_beside_vectors(self) -> list[str]:
        """The same with the readers that know deletion vectors."""
        return list(self.each_wrong({name: READERS[name] for name in ("Polars", "QueryBuilder")}))

    def each_wrong(self, readers: Mapping[str, Reader]) -> Iterator[str]:
        return (line for kind in KINDS for line in self._wrong_in(kind, readers))

    @property
    def _port(self) -> LocalPort:
        assert self.lake.port is not None
        return self.lake.port

    @property
    def is_spark(self) -> bool:
        return self._port.name == "many"

    def _wrong_in(self, kind: str, readers: Mapping[str, Reader]) -> Iterator[str]:
        path = getattr(self.layout, kind)
        rows = read_table(path).cast(pa.schema(DeltaTable(path).schema().to_arrow()))  # without views
        asked = [p for p in probes(rows, "_gddl", "nested") if p.path[0] not in ALIKE]
        assert asked, kind
        for name, reader in readers.items():
            found = reader(path, asked)
            yield from (_line(kind, name, probe, n) for probe, n in zip(asked, found, strict=True) if n != probe.rows)


def _line(kind: str, reader: str, probe: Probe, found: int) -> str:
    return f"{kind}, {reader}: {probe}, found {found}"


@pytest.fixture(scope="module")
def table(engine: LocalPort, tmp_path_factory: pytest.TempPathFactory) -> Filtered:
    table = Filtered(Lake(tmp_path_factory.mktemp(engine.name), port=engine.everywhere()), SPEC)
    land(table.landing, "LOAD00000001.parquet", [Row(i, i) for i in range(40)] + [Row(None, 41)], DOTTED)
    table.run()
    return table


@pytest.mark.deep_on_many
def test_after_changes_and_evolution(table: Filtered) -> None:
    """Old files know nothing of a new column, and hold another type of a grown one."""
    rows = [Row(1, 101), Row(2, 2), Row(50, 50), Row(None, 51)]
    land(table.landing, "20240101-000000001.parquet", rows, Op=["U", "D", "I", "I"], seq=[1, 2, 3, 4])
    rows = [Row(1, 201), Row(60, 60)]
    grown = {"added": pa.string(), "id": pa.int64(), "n00": pa.int64()}
    types = {**grown, "added": pa.int64()}
    land(table.landing, "20240101-000000002.parquet", rows, types, Op=["U", "I"], seq=[5, 6])
    result = table.run()
    assert (result.changes_written, result.quarantined) == (5, 1)
    assert table.wrong() == []


@pytest.mark.deep_on_many
def test_readers_find_the_same_rows_after_maintenance(table: Filtered) -> None:
    for n in range(3, 9):
        land(table.landing, f"20240101-{n:09d}.parquet", [Row(60 + n, 60 + n)], Op=["I"], seq=[10 + n])
        table.run()
    table.run(JobOptions(action=Maintain()))
    assert table.is_spark or table.wrong() == [], "the last test looks at what became of all"


@pytest.mark.deep_on_many
def test_after_a_full_refresh(table: Filtered) -> None:
    table.run(JobOptions(action=Rebuild()))
    assert table.wrong_with_spark() == []


def test_readers_find_the_same_rows_beside_deletion_vectors(tmp_path: Path) -> None:
    """Statistics of files without some of their rows are as wide as before, whatever the columns' types."""
    tier = replace(DEFAULT_TIERS["small"], deletion_vectors=True)
    table = Filtered(Lake(tmp_path, tier, LocalPort("one")), SPEC)
    land(table.landing, "LOAD00000001.parquet", [Row(i, i) for i in range(40)], DOTTED)
    table.run()
    rows = [Row(1, 101), Row(2, 2), Row(50, 50)]
    land(table.landing, "20240101-000000001.parquet", rows, Op=["U", "D", "I"], seq=[1, 2, 3])
    land(table.landing, "20240101-000000002.parquet", [Row(None, 51)], {"added": pa.int64()}, Op=["I"], seq=[4])
    table.run()
    land(table.landing, "20240101-000000003.parquet", [Row(50, 60), Row(7, 70)], Op=["U", "U"], seq=[5, 6])
    table.run()
    assert list(Path(table.layout.replica).glob("deletion_vector_*.bin"))
    assert table.wrong_beside_vectors() == []


def test_nan_inside_a_struct(tmp_path: Path) -> None:
    """NaN is above all numbers for most readers: bounds without it would leave it out."""
    part = pa.array([{"x": 1.0}, {"x": float("nan")}, None], pa.struct([("x", pa.float64())]))
    lake, spec = Lake(tmp_path), spec_of()
    write(Path(lake.layout(spec).landing), "LOAD00000001.parquet", pa.table({"id": [1, 2, 3], "part": part}))
    lake.done(spec)
    (file,) = DeltaTable(lake.layout(spec).replica).file_uris()
    count = "SELECT count(*) FROM read_parquet(?) WHERE part.x > 100"
    assert duckdb.execute(count, [file]).fetchone() == (1,)
    group = pq.read_metadata(file).row_group(0)
    bounded = {column.path_in_schema for column in map(group.column, range(group.num_columns)) if column.statistics}
    assert {"id", "_gddl.op"} <= bounded
    assert "part.x" not in bounded
