"""What becomes of the stored row of a key when a batch brings a change of it: in order, late, after a delete."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.order import events
from spark_jobs.rules.outcome import ACTION, AT, Outcome, StoredState, outcome_of
from tests.rules.changes import LATER, Change, table, table_schema


def net(changes: list[Change], schema: TableSchema) -> pa.Table:
    return net_changes(events(table(changes, schema), schema), schema, partial=False)


@dataclass
class Played:
    """Batches of one table, each merged into what those before have left."""

    schema: TableSchema
    changes: list[Change] = field(default_factory=list)
    stored: StoredState | None = None

    def batch(self, *changes: Change) -> Outcome:
        self.changes += changes
        rows = net_changes(events(table(changes, self.schema), self.schema), self.schema, partial=False)
        known = StoredState(replica=rows.slice(0, 0)) if self.stored is None else self.stored
        found = outcome_of(rows, known, self.schema, self._every, partial=False)
        self.stored = self._after(known, found)
        return found

    def _every(self, _keys: pa.Table) -> pa.Table:
        return events(table(self.changes, self.schema), self.schema)

    @staticmethod
    def _after(known: StoredState, found: Outcome) -> StoredState:
        actions = dict(zip(found.rows.column("id").to_pylist(), found.rows.column(ACTION).to_pylist(), strict=True))
        acted = {key for key, action in actions.items() if action}
        put = [actions[key] in ("insert", "update") for key in found.rows.column("id").to_pylist()]
        kept = [key not in acted for key in known.replica.column("id").to_pylist()]
        made = found.rows.filter(pa.array(put, pa.bool_())).drop_columns([ACTION, AT])
        before = known.replica.filter(pa.array(kept, pa.bool_())).select(made.column_names).cast(made.schema)
        deletes = [found.deletes] if known.tombstones is None else [known.tombstones, found.deletes]
        return StoredState(replica=pa.concat_tables([before, made]), tombstones=pa.concat_tables(deletes))


def acted(before: list[Change], change: Change, **spec: Any) -> tuple[str | None, Outcome]:
    played = Played(table_schema(**spec))
    for one in before:
        played.batch(one)
    found = played.batch(change)
    actions = [action for action in found.rows.column(ACTION).to_pylist() if action]
    return (actions[0] if actions else None), found


def late(op: str, seq: int, v: str = "new") -> Change:
    return Change(op=op, seq=seq, v=v, file=LATER, batch="000000000003")


ROW = [Change(op="I", seq=5, v="old")]
GONE = [*ROW, Change(op="D", seq=6, v="old", batch="000000000002", file=LATER)]


@pytest.mark.parametrize(
    ("before", "change", "action", "row"),
    [
        (ROW, late("U", 6), "update", "new"),
        (ROW, late("U", 4), None, "old"),
        (ROW, late("D", 6), "delete", "deleted"),
        (ROW, late("D", 4), None, "old"),
        (ROW, late("I", 7), "update", "new"),
        (GONE, late("U", 5), None, "deleted"),
        (GONE, late("I", 7), "insert", "new"),
        (GONE, late("D", 7), None, "deleted"),
        (GONE, late("D", 4), None, "deleted"),
        ([], late("I", 1), "insert", "new"),
        ([], late("U", 1), "insert", "new"),
        ([], late("D", 1), None, None),
    ],
    ids=lambda value: f"{value.op}{value.seq}" if isinstance(value, Change) else None,
)
def test_newer_change_decides_what_becomes_of_the_row(
    before: list[Change], change: Change, action: str | None, row: str | None
) -> None:
    """`row`: under soft deletes its value, `deleted`, or None where there is none."""
    assert acted(before, change)[0] == action
    played = Played(table_schema(delete="soft"))
    for one in (*before, change):
        played.batch(one)
    assert played.stored is not None
    rows = ["deleted" if one[GDDL]["deleted"] else one["v"] for one in played.stored.replica.to_pylist()]
    assert rows == ([] if row is None else [row])


def test_counts_and_deletes_of_a_batch() -> None:
    played = Played(table_schema())
    played.batch(*[Change(op="I", id=key, v="old") for key in (1, 2, 3)])
    found = played.batch(
        Change(op="U", id=1, seq=9, v="new", batch="000000000002"),
        Change(op="D", id=2, seq=9, batch="000000000002", position=1),
        Change(op="I", id=4, seq=9, v="more", batch="000000000002", position=2),
        Change(op="D", id=5, seq=9, batch="000000000002", position=3),
        Change(op="U", id=3, seq=1, v="late", batch="000000000002", position=4),
    )
    assert (found.counts.inserted, found.counts.updated, found.counts.deleted, found.late) == (1, 1, 1, 1)
    assert sorted(found.deletes.column("id").to_pylist()) == [2, 5]
    actions = zip(found.rows.column("id").to_pylist(), found.rows.column(ACTION).to_pylist(), strict=True)
    assert {key: action for key, action in actions if action} == {1: "update", 2: "delete", 4: "insert"}
    assert played.stored is not None
    assert {row["id"]: row["v"] for row in played.stored.replica.to_pylist()} == {1: "new", 3: "old", 4: "more"}


@pytest.mark.parametrize(("before", "known"), [(ROW, True), (GONE, False), ([], False)])
def test_update_of_a_row_that_nothing_is_known_of_is_counted(before: list[Change], known: bool) -> None:
    _, found = acted(before, late("U", 9))
    assert found.unknown_keys.num_rows == (0 if known else 1)


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_change_of_a_swept_generation_makes_no_row(delete: str) -> None:
    played = Played(replace(table_schema(delete=delete), swept=2))
    found = played.batch(Change(op="I", generation=1), Change(op="I", id=2, generation=2, position=1))
    actions = zip(found.rows.column("id").to_pylist(), found.rows.column(ACTION).to_pylist(), strict=True)
    assert {key: action for key, action in actions if action} == {2: "insert"}
