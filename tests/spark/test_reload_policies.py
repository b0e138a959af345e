"""A reload from files compares what they bring with the live table, as the policies of the row now say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

SPEC = spec_of(settle="0s")
EVOLVED = {1: ("changed", 2**40, "new", 7), 2: ("load", 2, None, None)}


class World:
    """A table that got a column, a wider type and a nested field since its load."""

    def __init__(self, port: LocalPort, root: Path) -> None:
        self.port, self.lake, self.files = port, Lake(root), Lake(root)
        self.landing = Path(self.files.layout(SPEC).landing)
        n, s = pa.array([1, 2], pa.int32()), pa.array([{"a": 1}, {"a": 2}])
        write(self.landing, "LOAD00000001.parquet", pa.table({"id": [1, 2], "v": ["load"] * 2, "n": n, "s": s}))
        self.change(1, id=1, v="changed", n=2**40, s={"a": 1, "b": 7}, w="new")
        assert self.run(SPEC).error is None
        assert self.rows() == EVOLVED

    def change(self, number: int, **values: Any) -> None:
        rows = pa.table({"Op": ["U"], "seq": [number], **{name: [value] for name, value in values.items()}})
        write(self.landing, f"20240101-00000000{number}.parquet", rows)

    def run(self, spec: TableSpec, **options: Any) -> JobResult:
        return self.lake.results(self.port, self.lake.job([spec], options_of(**options)))[spec.table]

    def rows(self) -> dict[int, tuple[Any, ...]]:
        found = self.port.read(self.files.layout(SPEC).replica)
        return {row["id"]: (row["v"], row["n"], row.get("w"), row["s"].get("b")) for row in found}

    @property
    def columns(self) -> set[str]:
        return set(self.port.read(self.files.layout(SPEC).replica)[0])


def under(new_column: Any, type_change: Any = "fail") -> TableSpec:
    return replace(SPEC, schema_evolution=SchemaEvolution(new_column=new_column, type_change=type_change))


@pytest.mark.parametrize(
    "policy", ["fail", *(pytest.param(policy, marks=pytest.mark.deep_on_many) for policy in ("ignore", "rescue"))]
)
def test_what_the_live_table_has_is_no_news(policy: str, engine: LocalPort, tmp_path: Path) -> None:
    world = World(engine, tmp_path)
    done = world.run(under(policy), action="reload", confirmed=True)
    assert done.error is None, done.error
    assert world.rows() == EVOLVED


@pytest.mark.parametrize("policy", ["fail", "ignore"])
def test_what_only_the_files_have_is_judged(policy: str, engine: LocalPort, tmp_path: Path) -> None:
    world = World(engine, tmp_path)
    world.change(2, id=2, v="load", n=2, s={"a": 2}, x="unknown")
    done = world.run(under(policy), action="reload", confirmed=True)
    if policy == "fail":
        assert done.error is not None
        assert (done.error.code, "x" in done.error.message) == ("SCHEMA_REFUSED", True)
    else:
        assert done.error is None, done.error
    assert world.rows() == EVOLVED
    assert "x" not in world.columns
