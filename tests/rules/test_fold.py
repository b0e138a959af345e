"""What is rescued of a row, folded over its changes: against a model, in any batches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.plan.planned_batch import GenerationFloor
from spark_jobs.plan.table_schema import GDDL, RESCUED, Column, TableSchema
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.errors_table import entries, text_of
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.history import versions
from spark_jobs.rules.order import events
from spark_jobs.rules.outcome import ACTION, StoredState, decide, overlaid
from tests.harness.examples import at_random

_COLUMNS = {"id": "bigint", "v": "string", "n": "bigint", "cols": "string"}
_VALUES: dict[str, Any] = {"v": "a", "n": 1}


@dataclass(frozen=True)
class _Change:
    """An update or insert of the key 1; `x` is a column that the table lacks."""

    op: str
    values: dict[str, Any]
    rescued: dict[str, Any]
    cols: str | None


def _schema(ignoring: bool, listing: bool) -> TableSchema:
    evolution = SchemaEvolution(new_column="rescue", type_change="rescue")
    spec = TableSpec(table="s.t", keys=("id",), ignore_null_updates=ignoring, schema_evolution=evolution,
                     columns_to_update="cols" if listing else None)  # fmt: skip
    columns = tuple(Column(name, parse_type(kind)) for name, kind in _COLUMNS.items())
    return TableSchema(spec=spec, keys=("id",), data=columns, sequence=("seq",), sequence_type="bigint",
                       technical=("cols",))  # fmt: skip


@st.composite
def _changes(draw: st.DrawFn) -> _Change:
    op = draw(st.sampled_from(["I", "U", "U", "U", "U", "D"]))
    rescued = {c: draw(st.integers(0, 9)) for c in draw(st.sets(st.sampled_from(["v", "n", "x"])))} if op != "D" else {}
    values = {c: None if c in rescued else draw(st.sampled_from([None, value])) for c, value in _VALUES.items()}
    return _Change(op, values, rescued, draw(st.sampled_from([None, "v", "n", "v,n", "x"])))


def _table(schema: TableSchema, changes: list[tuple[int, _Change]]) -> pa.Table:
    rows = []
    for seq, change in changes:
        file = f"/l/20240101-{seq:09d}.parquet"
        gddl = {"sequence": seq, "op": change.op, "source_file": file, "position": 0, "batch_id": f"{seq:012d}",
                "generation": 1, "schema": 0}  # fmt: skip
        text = json.dumps({**change.rescued, "_file_path": file}, separators=(",", ":")) if change.rescued else None
        rows.append({"id": 1, **change.values, "cols": change.cols, RESCUED: text, GDDL: gddl})
    kinds = {n: arrow_type(parse_type(k)) for n, k in {**_COLUMNS, RESCUED: "string", GDDL: schema.gddl_type}.items()}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def _model(schema: TableSchema, changes: list[_Change]) -> tuple[dict[str, Any], dict[str, tuple[int, int]]] | None:
    """The row, and value and change of what is rescued of it."""
    row: tuple[dict[str, Any], dict[str, tuple[int, int]]] | None = None
    for seq, change in enumerate(changes, start=1):
        if change.op == "D":
            row = None
            continue
        values, rescued = ({}, {}) if row is None or change.op == "I" else (dict(row[0]), dict(row[1]))
        listed = change.cols.split(",") if schema.spec.columns_to_update and change.cols else None
        for column in ("v", "n", "x"):
            given = change.values.get(column) is not None or column in change.rescued
            named = listed is None or column in listed
            taken = change.op == "I" or (named and (given or not schema.spec.ignore_null_updates))
            if column == "x":  # a list without a value of it says nothing
                taken = taken and (change.op == "I" or listed is None or column in change.rescued)
            if taken:
                values[column] = change.values.get(column)
                rescued.pop(column, None)
                if column in change.rescued:
                    rescued[column] = (change.rescued[column], seq)
        row = values, rescued
    return row


def _state(row: dict[str, Any] | None) -> Any:
    if row is None:
        return None
    found = entries(row[RESCUED])
    files = {c: (json.loads(e.value), int(str(json.loads(e.file or '""'))[-17:-8])) for c, e in found.items()}
    return {c: row[c] for c in _VALUES}, files


def _wanted(schema: TableSchema, changes: list[_Change]) -> Any:
    found = _model(schema, changes)
    return None if found is None else ({c: found[0].get(c) for c in _VALUES}, found[1])


@settings(max_examples=at_random(400))
@given(st.booleans(), st.booleans(), st.lists(_changes(), min_size=1, max_size=8), st.sets(st.integers(1, 7)))
def test_any_batches_give_the_fold(ignoring: bool, listing: bool, changes: list[_Change], cuts: set[int]) -> None:
    schema = _schema(ignoring, listing)
    numbered = list(enumerate(changes, start=1))
    whole = net_changes(events(_table(schema, numbered), schema), schema, partial=True).to_pylist()[0]
    wanted = _wanted(schema, changes)
    assert _state(None if whole[GDDL]["op"] == "D" else whole) == wanted
    names = [*schema.columns, GDDL]
    replica = _table(schema, []).select(names)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(changes)), len(changes)]
    for begin, end in pairwise(bounds):
        batch = net_changes(events(_table(schema, numbered[begin:end]), schema), schema, partial=True)
        decided = decide(batch, StoredState(replica=replica), schema, partial=True)
        rows = overlaid(decided, replica, schema, partial=True)
        action = rows.column(ACTION).to_pylist()[0]
        assert action == "delete" or action is not None or not replica.num_rows
        replica = replica.slice(0, 0) if action in (None, "delete") else rows.select(names)
    found = replica.to_pylist()
    assert _state(found[0] if found else None) == wanted


@settings(max_examples=at_random(200))
@given(st.booleans(), st.booleans(), st.lists(_changes(), min_size=1, max_size=8))
def test_each_version_has_what_is_rescued_of_it(ignoring: bool, listing: bool, changes: list[_Change]) -> None:
    schema = _schema(ignoring, listing)
    found = versions(
        events(_table(schema, list(enumerate(changes, start=1))), schema), schema, (GenerationFloor(),), 1
    ).to_pylist()
    for seq in range(1, len(changes) + 1):
        at = [row for row in found if row["__start_at"] <= seq and (row["__end_at"] is None or seq < row["__end_at"])]
        assert _state(at[0] if at else None) == _wanted(schema, changes[:seq])


def test_texts_keep_all_digits_and_files() -> None:
    one = '{"a b":1.10,"_file_path":"f"}'
    two = '{"a b":{"x":[1,"}"]},"n":"\\u00e9","_file_path":{"a b":"f","n":"g"}}'
    assert [text_of(entries(text)) for text in (one, two, None)] == [one, two, None]
