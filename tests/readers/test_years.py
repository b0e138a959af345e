"""Dates and times of years that readers of Delta tables fail on stay out of the tables, in the quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import HandleErrors, Rebuild, Verify
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from tests.harness.engine_port import EnginePort
from tests.harness.landing import write

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))


BEYOND: dict[str, tuple[pa.Array, list[int]]] = {
    "date": (pa.array([-719_163, -719_162, 2_932_896, 2_932_897, None], pa.int32()).cast(pa.date32()), [0, 3]),
    "time": (pa.array([-(2**60), 0, None, 2**60, 1]).cast(pa.timestamp("us")), [0, 3]),
    "milliseconds": (pa.array([1, 2, 3, 10**15, None]).cast(pa.timestamp("ms", "UTC")), [3]),
}
"""Values of a table, and which of them no reader takes."""


def test_rows_beyond_the_years_1_to_9999(engine: EnginePort, tmp_path: Path) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    specs = {name: replace(SPEC, table=f"s.{name}") for name in BEYOND}
    for name, (values, _) in BEYOND.items():
        rows = pa.table({"id": pa.array(range(5), pa.int32()), "at": values})
        write(Path(Layout.of(roots, specs[name]).landing), "LOAD00000001.parquet", rows)
    results = engine.run(JobSpec(run_id="r", roots=roots, tables=tuple(specs.values())))
    for (name, (values, bad)), result in zip(BEYOND.items(), results, strict=True):
        layout = Layout.of(roots, specs[name])
        assert (result.error, result.quarantined) == (None, len(bad)), name
        errors = engine.read(layout.errors)
        found = sorted((e["code"], e["column"], e["position"]) for e in errors)
        assert found == [("CAST_FAILED", "at", n) for n in bad], name
        rows = DeltaTable(layout.replica).to_pyarrow_table(filters=[("id", ">=", 0)])
        assert sorted(rows["id"].to_pylist()) == [n for n in range(5) if n not in bad], name
        assert rows["at"].null_count == values.null_count, name


TIME = pa.timestamp("us")


@pytest.mark.deep_on_many
@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (pa.list_(TIME), lambda at: [at, None]),
        (pa.struct([("at", TIME), ("n", pa.int32())]), lambda at: {"at": at, "n": 1}),
        (pa.list_(pa.struct([("at", TIME)])), lambda at: [{"at": at}]),
        (pa.map_(pa.string(), pa.timestamp("us", "UTC")), lambda at: [("k", at)]),
    ],
    ids=["list", "struct", "list of structs", "map"],
)
def test_rows_with_such_a_time_in_any_column(
    kind: pa.DataType, wrap: Callable[[int], object], engine: EnginePort, tmp_path: Path
) -> None:
    """The second row has a null key, too; each has a record that a replay reads."""
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    layout = Layout.of(roots, SPEC)
    values = pa.array([wrap(0), wrap(2**60), wrap(2**60), wrap(1), None], kind)
    rows = pa.table({"id": pa.array([0, None, 2, 3, 4], pa.int32()), "n": values})
    write(Path(layout.landing), "LOAD00000001.parquet", rows)
    for options in (JobOptions(), JobOptions(action=HandleErrors(mode="replay")), JobOptions(action=Rebuild())):
        (result,) = engine.run(JobSpec(run_id="r", roots=roots, tables=(SPEC,), options=options))
        assert result.error is None, result.error
        left = [e for e in engine.read(layout.errors) if e["resolved_at"] is None]
        assert sorted(e["position"] for e in left) == [1, 2]
        assert all("38504-" in e["record"] for e in left)
    assert sorted(row["id"] for row in engine.read(layout.replica)) == [0, 3, 4]
    (verified,) = engine.run(JobSpec(run_id="v", roots=roots, tables=(SPEC,), options=JobOptions(action=Verify())))
    assert verified.error is None, verified.error


def test_replay_loads_the_original_values(engine: EnginePort, tmp_path: Path) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    layout = Layout.of(roots, SPEC)
    days = pa.array([-800_000, 0, 2_932_897], pa.int32()).cast(pa.date32())
    rows = pa.table({"id": pa.array(range(3), pa.int32()), "day": days})
    write(Path(layout.landing), "LOAD00000001.parquet", rows)
    for options in (JobOptions(), JobOptions(action=HandleErrors(mode="replay"))):
        (result,) = engine.run(JobSpec(run_id="r", roots=roots, tables=(SPEC,), options=options))
        assert result.error is None, result.error
        left = [e for e in engine.read(layout.errors) if e["resolved_at"] is None]
        assert sorted(e["record"] for e in left) == ['{"id":0,"day":"-221-09-04"}', '{"id":2,"day":"10000-01-01"}']
    assert [row["id"] for row in engine.read(layout.replica)] == [1]
