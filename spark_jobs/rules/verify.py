"""Does the replica hold what its change table folds to, do rows share keys, and what happened to one key?

Tables are compared value by value. A key: its changes in order, the one that decides, and whether the replica agrees
(docs/semantics.md, section 14).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import EVENT_FIELDS, Column, TableSchema
from spark_jobs.rules.arrays import all_false, all_true, ascending, by_name, flat, row_codes, table_codes
from spark_jobs.rules.erasure import key_texts
from spark_jobs.rules.fold import newest_state
from spark_jobs.rules.order import (
    OrderedEvents,
    deciding_parts,
    deleted_by,
    events,
    gddl_fields,
    keys_json,
    late_truncates,
    moved_rows,
    ordered,
    that_count,
)
from spark_jobs.rules.stored_columns import change_schema, data_columns, event_schema, stored_schema
from spark_jobs.rules.sweep import appended, unmarked
from spark_jobs.rules.texts import rows_json

BUCKETS = 256


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of comparing a replica, or its rows of some keys, with the fold of its change table.

    Attributes:
        rows, expected_rows: of the replica, and of the fold of the change table (soft-deleted rows left out of both).
        buckets: those of `BUCKETS`, by the key's hash, that hold keys that differ.
        keys: a few keys that differ, as JSON, with what is wrong: `missing`, `extra` or `different`.
    """

    rows: int
    expected_rows: int
    buckets: frozenset[int]
    keys: tuple[dict[str, str], ...]

    @property
    def equal(self) -> bool:
        return not self.buckets and self.rows == self.expected_rows


MOST_SHARED = 5
"""Keys that several rows share, and that are named."""


@dataclass(frozen=True, kw_only=True)
class SharedKeys:
    """Rows that share their key with others.

    Attributes:
        rows: rows of the table that have a key, those marked deleted left out.
        sharing: those of them whose key another one has, too.
        keys: some of these keys as JSON objects, lowest texts first, with the number of rows that have them.
    """

    rows: int
    sharing: int
    keys: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, reports: Sequence[Sequence[Any]]) -> SharedKeys:
        """Those of a whole table, from the reports of all ranges of its keys."""
        keys = sorted((text, rows) for _, _, keys in reports for text, rows in keys)[:MOST_SHARED]
        return cls(rows=sum(one[0] for one in reports), sharing=sum(one[1] for one in reports), keys=tuple(keys))


@dataclass(frozen=True, kw_only=True)
class LiveKeys:
    """The keys of the rows that have one; sent to tasks."""

    schema: pa.Schema

    def __call__(self, rows: pa.Table) -> pa.Table:
        keys = by_name(unmarked(rows), self.schema)
        return keys.filter(reduce(pc.and_, (column.is_valid() for column in keys.columns)))


@dataclass(frozen=True, kw_only=True)
class SharedKeysRule:
    """Rows of one range of keys that share their key; sent to tasks."""

    columns: tuple[Column, ...]

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> list[Any]:  # noqa: ARG002 - reads nothing
        (keys,) = rows.values()
        codes = row_codes(keys.columns, keys.num_rows)
        shared = np.bincount(codes)[codes] > 1 if keys.num_rows else all_false(0)
        _, first, counts = np.unique(codes[shared], return_index=True, return_counts=True)
        found = keys.filter(pa.array(shared, pa.bool_())).take(first)
        lowest = ascending(found, found.column_names)[:MOST_SHARED]
        chosen = found.take(lowest)
        columns = [(one.name, chosen.column(one.name).combine_chunks(), one.type) for one in self.columns]
        named = list(zip(rows_json(columns, nulls=True), counts[lowest.to_numpy()].tolist(), strict=True))
        return [keys.num_rows, int(shared.sum()), named]


def expected_state(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Rows that the replica should have: each key's fold in its highest generation, deleted ones left out.

    Args:
        happened: see `order.events`; all events of each key. Of a table without keys, its changes.
        swept: rows of generations before this one have vanished.
    """
    if not schema.keys:
        return appended(happened, replace(schema, swept=swept)).select(schema.columns)
    rows = newest_state(happened, schema, swept)
    return rows.filter(pc.not_equal(gddl_fields(rows)["op"], "D")).select(schema.columns)


def live_rows(replica: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows that are not marked deleted. Marks are as of the last batch, regardless of the current row.

    Args:
        replica: `_gddl` may be left out where it has no marks. Columns that it lacks are left out.
    """
    there = set(replica.column_names)
    return unmarked(replica).select([name for name in schema.columns if name in there])


MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"


def differing_keys(
    live: pa.Table, expected: pa.Table, columns: Sequence[str], by: Sequence[str]
) -> tuple[pa.Table, np.ndarray]:
    """A row of each key whose rows differ in some of the columns, and `MISSING`, `EXTRA` or `DIFFERENT` of each.

    Args:
        by: columns of the key.
    """
    live = by_name(live, expected.schema)
    mine, theirs = table_codes((live, expected), columns)
    size = max(int(mine.max(initial=0)), int(theirs.max(initial=0))) + 1
    odd = np.bincount(mine, minlength=size) != np.bincount(theirs, minlength=size)
    rows = pa.concat_tables([live.filter(odd[mine]), expected.filter(odd[theirs])])
    here = np.concatenate([all_true(int(odd[mine].sum())), all_false(int(odd[theirs].sum()))])
    key = row_codes([rows.column(c) for c in by], rows.num_rows)
    first = np.unique(key, return_index=True)[1]
    has, wants = np.bincount(key, weights=here), np.bincount(key, weights=~here)
    states = np.where(has == 0, MISSING, np.where(wants == 0, EXTRA, DIFFERENT))
    return rows.take(first), states[key[first]]


def compare(live: pa.Table, expected: pa.Table, schema: TableSchema, limit: int) -> Verdict:
    """The verdict on some keys, of which at most `limit` are named."""
    samples, states = differing_keys(live, expected, schema.columns, schema.keys or schema.columns)
    keyed = bool(schema.keys)
    texts = keys_json(samples, schema) if keyed else [repr(row) for row in samples.to_pylist()]
    buckets = frozenset(zlib.crc32(text.encode("utf-8", "surrogatepass")) % BUCKETS for text in texts)
    named = sorted(zip(texts, states.tolist(), strict=True))[:limit] if keyed else []
    return Verdict(rows=live.num_rows, expected_rows=expected.num_rows, buckets=buckets,
                   keys=tuple({"key": text, "state": state} for text, state in named))  # fmt: skip


def verdict_of(verdicts: Iterable[Verdict], limit: int) -> Verdict:
    """The verdict on rows that were compared in parts; `limit`: keys that it names at most."""
    parts = list(verdicts)
    keys = sorted((key for one in parts for key in one.keys), key=lambda key: key["key"])[:limit]
    return Verdict(
        rows=sum(v.rows for v in parts),
        expected_rows=sum(v.expected_rows for v in parts),
        buckets=frozenset[int]().union(*(v.buckets for v in parts)),
        keys=tuple(keys),
    )


ChangeState = Literal["winner", "superseded", "late", "swept"]
"""`late`: a higher change had arrived in an earlier batch. `swept`: the highest, but its generation was swept."""
OtherKey = tuple[str | None, ...] | None
"""The other key of an update that changed the key, as text part by part."""
Outcome = Literal["present", "deleted", "swept", "no_changes"]


@dataclass(frozen=True, kw_only=True)
class KeyChange:
    """One change of the key; a change that moved the row to another key is a delete here.

    Attributes:
        facts: `_gddl` of the change as JSON values.
        decided_by: the part of the order by which it is above the change before it, see `order.order_parts`; empty
            for the first.
        forced: applied regardless of its sequence (`force_update`).
        moved_from, moved_to: the other key of an update that changed the key, a JSON object; None: it did not.
        truncate: it is no change of the key, but a truncate of the source's table, as a delete.
    """

    facts: dict[str, Any]
    state: ChangeState
    decided_by: str
    forced: bool = False
    moved_from: str | None = None
    moved_to: str | None = None
    truncate: bool = False


@dataclass(frozen=True, kw_only=True)
class KeyHistory:
    """What the changes of a key lead to.

    Attributes:
        changes: lowest first.
        outcome: whether there is a row, or why there is none.
        verdict: `equal`, or as `verify.compare` says how the replica's row differs from what the changes give.
    """

    changes: tuple[KeyChange, ...]
    outcome: Outcome
    verdict: str


def key_json(schema: TableSchema, key: tuple[str | None, ...]) -> str:
    """A key, given as text part by part, as a JSON object."""
    return json.dumps(dict(zip(schema.keys, key, strict=True)), ensure_ascii=False)


def key_history(
    changes: pa.Table, replica: pa.Table, schema: TableSchema, key: tuple[str, ...], swept: int
) -> KeyHistory:
    """Order the key's changes and compare the result with the replica.

    Args:
        changes: rows of the change table, all that have the key or had it before; archived ones are left out.
        replica: rows of the replica with the key.
        key: its parts as `erasure.key_text` writes them.
        swept: rows of generations before this one have vanished.
    """
    changes = that_count(by_name(changes, event_schema(schema)))
    happened, others = _events_of(changes, schema, key)
    ordered_events = ordered(happened, schema)
    expected = expected_state(happened, schema, swept)
    differing = compare(live_rows(_of_replica(replica, schema), schema), expected, schema, 1).keys
    judged = _judged(ordered_events, happened, others, schema, swept)
    return KeyHistory(changes=judged, outcome=_outcome(judged, expected.num_rows),
                      verdict=differing[0]["state"] if differing else "equal")  # fmt: skip


def row_facts(rows: pa.Table, schema: TableSchema) -> list[dict[str, Any]]:
    """`_gddl` of rows as JSON values, with what only some tables have in it; numbers with a point as text."""
    gddl = gddl_fields(rows)
    fields = (*schema.gddl_fields, *(one for one in (*EVENT_FIELDS, ("deleted", "boolean")) if one[0] in gddl))
    texts = rows_json([(name, gddl[name], parse_type(kind)) for name, kind in fields], nulls=True)
    return [json.loads(text, parse_float=str) for text in texts]


def replica_records(replica: pa.Table, schema: TableSchema) -> list[dict[str, Any]]:
    """The replica's rows: `record`, the row as a JSON object in a text, in addition to `row_facts`."""
    rows = _of_replica(replica, schema)
    records = rows_json([(c.name, flat(rows.column(c.name)), c.type) for c in data_columns(schema)], nulls=True)
    facts = row_facts(rows, schema)
    return [{"record": record, **fact} for record, fact in zip(records, facts, strict=True)]


def _of_replica(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """In the types of the change table; a column that the replica lacks is null."""
    return by_name(rows, stored_schema(rows, schema.columns, change_schema(schema)))


def _events_of(changes: pa.Table, schema: TableSchema, key: tuple[str, ...]) -> tuple[pa.Table, list[OtherKey]]:
    """Events of the key, and for each the other key where an update changed it."""
    moved = moved_rows(changes, schema)
    current, old = (key_texts(changes, schema, old=was) for was in (False, True))
    others = [old[row] if moved[row] else None for row in range(changes.num_rows)]
    others += [current[row] for row in np.flatnonzero(moved)]  # `events` has their deletes at its end
    happened = events(changes, schema)
    others += [None] * (happened.num_rows - len(others))  # deletes by truncates
    late = deleted_by(happened, late_truncates(schema.truncates), schema).tolist()
    mine = [texts == key and not is_late for texts, is_late in zip(key_texts(happened, schema), late, strict=True)]
    return happened.filter(pa.array(mine, pa.bool_())), [o for o, m in zip(others, mine, strict=True) if m]


def _judged(
    ordered_events: OrderedEvents,
    happened: pa.Table,
    others: Sequence[OtherKey],
    schema: TableSchema,
    swept: int,
) -> tuple[KeyChange, ...]:
    facts = row_facts(happened, schema)  # of `ordered_events.rows` sequences are those that were made of forced ones
    states, decided = _states([facts[at] for at in ordered_events.at], swept), deciding_parts(ordered_events, schema)
    cut = deleted_by(happened, schema.truncates, schema)
    judged = []
    for number, at in enumerate(ordered_events.at):
        other = others[at]
        text = None if other is None else key_json(schema, other)
        moved = {"moved_from" if ordered_events.moved[number] else "moved_to": text}
        judged.append(KeyChange(facts=facts[at], state=states[number], decided_by=decided[number],
                              forced=bool(ordered_events.forced[number]), truncate=bool(cut[at]), **moved))  # fmt: skip
    return tuple(judged)


def _states(facts: list[dict[str, Any]], swept: int) -> list[ChangeState]:
    """The state of each change, given lowest first. Full-load rows are never late, as in `Applied.late`."""
    states: list[ChangeState] = []
    earliest: str | None = None
    for fact in reversed(facts):
        if earliest is None:
            states.append("winner" if fact["generation"] >= swept else "swept")
        else:
            states.append("late" if fact["op"] != "R" and earliest < fact["batch_id"] else "superseded")
        earliest = fact["batch_id"] if earliest is None else min(earliest, fact["batch_id"])
    return states[::-1]


def _outcome(changes: tuple[KeyChange, ...], expected: int) -> Outcome:
    if not changes:
        return "no_changes"
    if expected:
        return "present"
    return "swept" if changes[-1].state == "swept" else "deleted"
