"""Facts of events are the same wherever a table is worked on, and however its batches are committed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.result import CommitMethod
from spark_jobs.tables.places import TaskBounds
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.engine_port import EngineName
from tests.harness.lake import Lake, spec_of
from tests.oracle import DeliveredFile, Run

TYPES = {"Op": "string", "seq": "int64", "id": "int64", "a": "string", "b": "int64", "cols": "string"}
LARGE = TaskBounds(batch=-1)
"""Every batch is a large one."""
PLACES: dict[str, tuple[EngineName, TaskBounds | None, CommitMethod]] = {
    "memory": ("many", None, "direct"),
    "tasks": ("many", LARGE, "direct"),
    "merge": ("many", None, "merge"),
    "merge in tasks": ("many", LARGE, "merge"),
    "one task": ("one", LARGE, "direct"),
}


@pytest.mark.parametrize("place", PLACES)
def test_fields_come_later_and_stay(place: str, tmp_path: Path) -> None:
    engine, bounds, commit = PLACES[place]
    lake, port = Lake(tmp_path), LocalPort(engine, bounds)
    plain = spec_of(delete="soft", history=True, commit=commit, settle="0s")
    told = replace(plain, region="eu-west-1", source_type="oracle", columns_to_update="cols")

    def run(spec: Any, **options: Any) -> Any:
        result = lake.results(port, lake.job([spec], options_of(**options)))[spec.table]
        assert result.error is None, result.error
        return result

    lake.land(plain, _file(1, ("I", 1, "a", 1, None), ("I", 2, "b", 2, None)), TYPES)
    run(plain)
    lake.land(told, _file(2, ("U", 1, "A", None, "a"), ("D", 2, None, None, None), ("I", 3, "c", 3, None)), TYPES)
    run(told)
    nothing = {"region": None, "source_type": None, "columns": None}
    origin = {"region": "eu-west-1", "source_type": "oracle", "columns": None}
    parts = {20: {**origin, "columns": ["seq", "id", "a"]}, 21: {**origin, "columns": ["seq", "id"]}}
    facts = {10: nothing, 11: nothing, **parts, 22: origin}
    layout = lake.layout(plain)
    assert _facts(port.read(layout.changes)) == facts
    assert _facts(port.read_by_spark(layout.changes)) == facts
    again = (("U", 1, "A", None, "a"), ("D", 2, None, None, None), ("I", 3, "c", 3, None))
    moved = replace(told, region="us-east-1")
    lake.land(moved, _file(3, *again, number=2), TYPES)
    assert run(moved).redelivered == 3
    assert run(moved, action="verify").details["verdict"] == "equal"
    run(moved, action="rebuild")
    assert _facts(port.read_by_spark(layout.changes)) == facts
    run(replace(moved, exclude_columns=("b",)), action="rebuild")
    assert _facts(port.read_by_spark(layout.changes)) == facts
    live = {row["id"]: row["a"] for row in port.read_by_spark(layout.replica) if not row["_gddl"]["deleted"]}
    assert live == {1: "A", 3: "c"}
    assert "region" not in port.read_by_spark(layout.replica)[0]["_gddl"]


def _file(file: int, *rows: tuple[Any, ...], number: int = 0) -> Run:
    named = [
        dict(zip(("Op", "seq", "id", "a", "b", "cols"), (op, 10 * (number or file) + at, *rest), strict=True))
        for at, (op, *rest) in enumerate(rows)
    ]
    name = f"20240101-{file:09d}.parquet"
    return Run(files=(DeliveredFile(name=name, kind="change", columns=tuple(TYPES), rows=tuple(named)),))


def _facts(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {row["seq"]: {name: row["_gddl"][name] for name in ("region", "source_type", "columns")} for row in rows}
