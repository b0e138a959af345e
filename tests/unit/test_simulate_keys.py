"""Keys that the simulator proposes, and that its changes never alter."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.tools.simulate.simulator import prepare
from airflow_gddl.tools.simulate.source import propose_keys
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape

KEY_NAMES = [("order_id", "line_no"), ("OrderID", "LineNo"), ("invoice_no", "item"), ("tenant_id", "code", "seq")]


@st.composite
def composite(draw: st.DrawFn) -> tuple[tuple[str, ...], pa.Table]:
    """A key of several columns, none unique alone, before columns that are unique by chance."""
    names = draw(st.sampled_from(KEY_NAMES))
    parts = [draw(st.integers(2, 4)) for _ in names]
    rows: list[tuple[int, ...]] = [()]
    for size in parts:
        rows = [(*row, value) for row in rows for value in range(1, size + 1)]
    columns = {name: pa.array([row[i] for row in rows], pa.int32()) for i, name in enumerate(names)}
    columns["sku"] = pa.array([f"sku {n}" for n in range(len(rows))])
    columns["price"] = pa.array([n + 0.5 for n in range(len(rows))])
    columns["quantity"] = pa.array(range(len(rows)), pa.int64())
    return names, pa.table(columns)


@given(table=composite(), seed=st.integers(0, 9))
def test_a_composite_key_is_proposed_and_kept(table: tuple[tuple[str, ...], pa.Table], seed: int) -> None:
    keys, rows = table
    shapes = propose_keys({"order_lines": rows})
    assert shapes == {"order_lines": TableShape(keys=keys)}
    with TemporaryDirectory() as landing:
        spec = SimulateSpec(
            input={"order_lines": rows}, landing=Path(landing), schema="s", tables=shapes, changes=8, seed=seed
        )
        simulator = prepare(spec)
        simulator.land(0)
        known = {tuple(row.values()) for row in rows.select(list(keys)).to_pylist()}
        for number in (1, 2, 3):
            for path in sorted(simulator.land(number)):
                for row in pq.read_table(path).to_pylist():
                    key = tuple(row[name] for name in keys)
                    assert (row["Op"] == "I") or key in known, "an update or delete of a key that never was"
                    known.add(key)


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ({"name": ["a", "b"], "id": [1, 2]}, ("id",)),
        ({"first": ["a", "a"], "last": ["x", "y"], "customers_id": [7, 8]}, ("customers_id",)),
        ({"order_id": [1, 1, 2], "line_no": [1, 2, 1], "tracking_no": [7, 8, 9]}, ("order_id", "line_no")),
        ({"country_code": ["a", "a"], "code": [1, 2]}, ("code",)),
        ({"name": ["a", "b", "c"], "kind_id": [1, 1, 2], "maker_id": [1, 2, 1]}, ("name",)),
        ({"share": [0.1, 0.2], "city": ["x", "y"]}, ("city",)),
        ({"flag": [True, False], "share": [0.1, 0.2]}, ("id",)),
        ({"id": [None, 1], "city": ["x", "y"]}, ("city",)),
    ],
)
def test_likely_columns_come_first(columns: dict[str, list[object]], keys: tuple[str, ...]) -> None:
    assert propose_keys({"customers": pa.table(columns)})["customers"].keys == keys
