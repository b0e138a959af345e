"""Rules that need keys whole hold for any partition of the keys: what lets one text serve one task and many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.spec import DeleteMode
from spark_jobs.plan.planned_batch import GenerationFloor
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.fold import events_that_matter, lacking, net_changes, rebuilt_rows
from spark_jobs.rules.history import differences, versions
from spark_jobs.rules.order import events
from spark_jobs.rules.outcome import StoredState, decide, tombstones_of
from spark_jobs.rules.redelivery import new_changes
from spark_jobs.rules.verify import compare, expected_state, verdict_of
from tests.rules.changes import IN_ORDER, LATER, Change, table, table_schema

Rule = Callable[[list[Change]], pa.Table]
MODES: tuple[DeleteMode, ...] = ("hard", "soft")
FLOORS = (GenerationFloor(), GenerationFloor("2", "2024-01-01T02:00:00.000000+00:00"))
CHANGES = st.builds(
    Change, op=st.sampled_from("RIUUD"), id=st.integers(1, 4), v=st.sampled_from([None, "a", "b"]),
    seq=st.integers(1, 4), file=st.sampled_from([IN_ORDER, LATER, "/l/part-a.json", "/l/part-b.json"]),
    batch=st.sampled_from(["000000000001", "000000000002"]), generation=st.integers(1, 2),
    hour=st.sampled_from([None, 1, 2, 3]),
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Changes of a few keys, each with a place of its own."""
    drawn = draw(st.lists(CHANGES, min_size=1, max_size=14))
    return [replace(c, position=at, seq=None if c.op == "R" else c.seq) for at, c in enumerate(drawn)]


@given(histories(), histories(), st.sampled_from(MODES), st.integers(1, 3))
def test_result_is_independent_of_partitioning(
    batch: list[Change], stored: list[Change], delete: DeleteMode, parts: int
) -> None:
    schema = table_schema(delete=delete)
    for name, rule in _rules(schema, stored).items():
        whole = _rows([rule(batch)])
        split = [[c for c in batch if c.id % parts == part] for part in range(parts)]
        assert _rows(rule(part) for part in split) == whole, name


def _rows(found: Iterable[pa.Table]) -> list[str]:
    return sorted(repr(sorted(row.items(), key=lambda item: item[0])) for rows in found for row in rows.to_pylist())


def _rules(schema: TableSchema, stored: list[Change]) -> dict[str, Rule]:
    """Each over the changes of some keys, beside what is stored of all."""
    replica = rebuilt_rows(events(table(stored, schema), schema), schema, 1)
    tombstones = tombstones_of(_net(stored, schema), schema)
    old = versions(events(table(stored, schema), schema), schema, FLOORS, 1)

    def outcome(changes: list[Change]) -> pa.Table:
        mine = StoredState(replica=replica, tombstones=tombstones)
        return decide(_net(changes, schema), mine, schema, partial=schema.partial).drop_columns(["_gddl__at"])

    def difference(changes: list[Change]) -> pa.Table:
        keys = {change.id for change in changes}
        mine = old.filter(pa.array([key in keys for key in old.column("id").to_pylist()], pa.bool_()))
        missing, extra = differences(versions(_events(changes, schema), schema, FLOORS, 1), mine, schema)
        removed = by_name(mine.take(extra), missing.schema)
        goes = pa.array([False] * missing.num_rows + [True] * removed.num_rows, pa.bool_())
        return pa.concat_tables([missing, removed]).append_column("goes", goes)

    return {
        "net changes": lambda changes: _net(changes, schema),
        "outcome": outcome,
        "history": difference,
        "superseded": lambda changes: events_that_matter(_events(changes, schema), schema),
        "re-delivery": lambda changes: new_changes(table(changes, schema), table(stored, schema), schema),
        "lacking": lambda changes: lacking(table(changes, schema), table(stored, schema), schema),
        "expected state": lambda changes: expected_state(_events(changes, schema), schema, 1),
    }


def _events(changes: list[Change], schema: TableSchema) -> pa.Table:
    return events(table(changes, schema), schema)


def _net(changes: list[Change], schema: TableSchema) -> pa.Table:
    first = [change for change in changes if change.generation == 1]
    return net_changes(_events(first, schema), schema, partial=schema.partial)


def test_verdict_combines_those_of_partitions() -> None:
    schema = table_schema()
    stored = [Change(op="I", id=n, v=str(n % 3)) for n in range(12)]
    expected = expected_state(_events(stored, schema), schema, 1)
    live = pa.table({"id": pa.array(range(1, 13)), "v": pa.array([str(n % 2) for n in range(1, 13)])})
    whole = verdict_of([compare(live, expected, schema, 4)], 4)

    def part(rows: pa.Table, of: int) -> pa.Table:
        return rows.filter(pa.array([key % 3 == of for key in rows.column("id").to_pylist()]))

    parts = [compare(part(live, of), part(expected, of), schema, 4) for of in range(3)]
    assert verdict_of(parts, 4) == whole
    assert (whole.rows, whole.expected_rows, len(whole.keys)) == (12, 12, 4)
    assert {"key": '{"id":0}', "state": "missing"} in whole.keys
    assert {"key": '{"id":12}', "state": "extra"} in whole.keys


def test_rows_without_a_key_are_counted_and_not_named() -> None:
    schema = table_schema(keys=())
    expected = pa.table({"id": pa.array([1, 2, 2]), "v": pa.array(["a", "b", "b"])})
    found = verdict_of([compare(expected.slice(0, 2), expected, schema, 4)], 4)
    assert (found.rows, found.expected_rows, len(found.buckets), found.keys) == (2, 3, 1, ())
