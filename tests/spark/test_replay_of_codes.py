"""A replay of the quarantine takes rows of the codes that are asked for, and leaves the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.actions import HandleErrors
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from tests.harness.asked import options_of
from tests.harness.engine_port import EnginePort

pytestmark = pytest.mark.deep_on_many

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), options={"types": {"price": "decimal(4,2)"}})
WIDER = replace(SPEC, options={"types": {"price": "decimal(9,2)"}})


def test_rows_of_other_codes_are_kept(engine: EnginePort, tmp_path: Path) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    layout = Layout.of(roots, SPEC)
    columns = {
        "Op": ["I", "X", "I"],
        "seq": pa.array([1, 2, 3], pa.int64()),
        "id": pa.array([1, 2, 3], pa.int64()),
        "price": ["1.00", "2.00", "12345.00"],
    }
    Path(layout.landing).mkdir(parents=True)
    pq.write_table(pa.table(columns), Path(layout.landing) / "20240101-000000001.parquet")

    def run(spec: TableSpec, options: JobOptions) -> tuple[JobResult, list[str]]:
        (result,) = engine.run(JobSpec(run_id="r", roots=roots, tables=(spec,), options=options))
        assert result.error is None, result.error
        return result, sorted(e["code"] for e in engine.read(layout.errors) if e["resolved_at"] is None)

    def replay(*codes: str) -> tuple[JobResult, list[str]]:
        return run(WIDER, JobOptions(action=HandleErrors(mode="replay", codes=codes)))

    assert run(SPEC, JobOptions())[1] == ["CAST_FAILED", "OP_UNKNOWN"]
    refused, left = replay("OP_UNKNOWN")
    assert (refused.rows_read, refused.quarantined, left) == (1, 1, ["CAST_FAILED", "OP_UNKNOWN"])
    assert [row["id"] for row in engine.read(layout.replica)] == [1]
    accepted, left = replay("CAST_FAILED")
    assert (accepted.rows_read, accepted.changes_written, left) == (1, 1, ["OP_UNKNOWN"])
    assert sorted(row["id"] for row in engine.read(layout.replica)) == [1, 3]
    none, left = replay("KEY_NULL")
    assert (none.rows_read, left) == (0, ["OP_UNKNOWN"])


def test_dismissed_rows_are_kept_and_no_longer_wait(engine: EnginePort, tmp_path: Path) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    layout = Layout.of(roots, SPEC)
    folder = Path(layout.landing)
    folder.mkdir(parents=True)
    for number, ops in enumerate((["I", "X", "X"], ["X", None, "I"]), 1):
        at = [10 * number + i for i in range(3)]
        price = ["1.00", "2.00", "12345.00"]
        columns = {"Op": pa.array(ops, pa.string()), "seq": pa.array(at, pa.int64()), "id": at, "price": price}
        pq.write_table(pa.table(columns), folder / f"20240101-00000000{number}.parquet")

    def run(spec: TableSpec = SPEC, **options: Any) -> JobResult:
        (result,) = engine.run(JobSpec(run_id="r", roots=roots, tables=(spec,), options=options_of(**options)))
        assert result.error is None, result.error
        return result

    def left() -> list[tuple[str, int]]:
        return sorted((e["code"], e["position"]) for e in engine.read(layout.errors) if e["resolved_at"] is None)

    assert run().in_quarantine == 5
    (first,) = {e["source_file"] for e in engine.read(layout.errors) if e["source_file"].endswith("1.parquet")}
    why: dict[str, Any] = {"action": "errors_dismiss", "reason": "a tool of the source that is gone", "asked_by": "ada"}
    one = run(codes=("OP_UNKNOWN",), source_files=(first,), **why)
    assert one.in_quarantine == 3
    assert one.details == {
        "dismissed": 2,
        "codes": ["OP_UNKNOWN"],
        "files": [first],
        "reason": why["reason"],
        "by": "ada",
    }
    assert run(codes=("KEY_NULL",), **why).details["dismissed"] == 0
    assert run(codes=("OP_UNKNOWN", "OP_MISSING"), **why).in_quarantine == 1
    assert left() == [("CAST_FAILED", 2)]
    assert len(engine.read(layout.errors)) == 5, "they are kept"
    assert run(WIDER, action="errors_replay").rows_read == 1, "no dismissed row is replayed"
    assert sorted(row["id"] for row in engine.read(layout.replica)) == [10, 22]


def test_a_value_that_does_not_fit_is_rescued_by_a_replay(engine: EnginePort, tmp_path: Path) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    typed = replace(SPEC, options={})
    layout = Layout.of(roots, typed)
    folder = Path(layout.landing)
    folder.mkdir(parents=True)
    for number, price in enumerate((pa.array([7], pa.int32()), pa.array(["seven"])), 1):
        columns = {"Op": ["I"], "seq": pa.array([number], pa.int64()), "id": [number], "price": price}
        pq.write_table(pa.table(columns), folder / f"20240101-00000000{number}.parquet")

    def run(spec: TableSpec, action: Literal["run", "errors_replay"]) -> int | None:
        (result,) = engine.run(JobSpec(run_id="r", roots=roots, tables=(spec,), options=options_of(action)))
        assert result.error is None, result.error
        return result.in_quarantine

    assert run(typed, "run") == 1
    rescuing = replace(typed, schema_evolution=replace(typed.schema_evolution, type_change="rescue"))
    assert run(rescuing, "errors_replay") == 0
    rows = {row["id"]: (row["price"], row["_rescued_data"]) for row in engine.read(layout.replica)}
    assert rows[1] == (7, None)
    assert rows[2][0] is None
    assert "seven" in rows[2][1]


def test_a_replay_has_all_digits_of_a_time(engine: EnginePort, tmp_path: Path) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    strict = TableSpec(table="s.t", keys=("id",), sub_microseconds="quarantine")
    layout = Layout.of(roots, strict)
    columns = {"id": pa.array([1, 2], pa.int64()), "at": pa.array([-1, 1_700_000_000_123_456_000], pa.timestamp("ns"))}
    Path(layout.landing).mkdir(parents=True)
    pq.write_table(pa.table(columns), Path(layout.landing) / "LOAD1.parquet", use_deprecated_int96_timestamps=True)

    def run(spec: TableSpec, options: JobOptions) -> list[tuple[int, str]]:
        (result,) = engine.run(JobSpec(run_id="r", roots=roots, tables=(spec,), options=options))
        assert result.error is None, result.error
        return sorted((row["id"], str(row["at"])) for row in engine.read(layout.replica))

    given = (2, "2023-11-14 22:13:20.123456")
    assert run(strict, JobOptions()) == [given]
    assert run(strict, JobOptions(action=HandleErrors(mode="replay"))) == [given]
    rounded = replace(strict, sub_microseconds="round")
    assert run(rounded, JobOptions(action=HandleErrors(mode="replay"))) == [(1, "1970-01-01 00:00:00"), given]


def test_row_of_a_swept_load_does_not_come_back(engine: EnginePort, tmp_path: Path) -> None:
    """The source has deleted it: the load was written again without it."""
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    keyed, keyless = (
        replace(SPEC, table=name, keys=keys, sweep_limit=1.0) for name, keys in (("s.t", ("id",)), ("s.k", ()))
    )
    layouts = [Layout.of(roots, spec) for spec in (keyed, keyless)]

    def run(*specs: TableSpec, **options: Any) -> list[JobResult]:
        results = engine.run(JobSpec(run_id="r", roots=roots, tables=specs, options=options_of(**options)))
        assert [result.error for result in results] == [None] * len(specs)
        return results

    def land(*rows: tuple[int, str]) -> None:
        for layout in layouts:
            Path(layout.landing).mkdir(parents=True, exist_ok=True)
            columns = {"id": pa.array([n for n, _ in rows], pa.int64()), "price": [price for _, price in rows]}
            pq.write_table(pa.table(columns), Path(layout.landing) / "LOAD1.parquet")
            changes = {"Op": ["I"], "seq": [1], "id": pa.array([3], pa.int64()), "price": ["54321.00"]}
            pq.write_table(pa.table(changes), Path(layout.landing) / "20240101-000000001.parquet")

    land((1, "1.00"), (2, "12345.00"))
    run(keyed, keyless)
    land((1, "1.50"))
    run(keyed, keyless)
    wider = [replace(spec, options=WIDER.options) for spec in (keyed, keyless)]
    replayed = run(*wider, action="errors_replay")
    counts = [(result.rows_read, result.changes_written, result.late_ignored) for result in replayed]
    assert counts == [(1, 1, 1), (1, 1, 1)], "the load's own row was settled by its new version"
    assert [[row["id"] for row in engine.read(layout.replica)] for layout in layouts] == [[1], [1]]
    verdicts = run(*wider, action="verify")
    assert [result.details["verdict"] for result in verdicts] == ["equal", "equal"]
