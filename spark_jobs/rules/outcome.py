"""Decides a batch's actions on the replica's rows from its net changes (docs/semantics.md, sections 3 to 8).

Needs what the tables hold of each key together with its net change; holds for any partition of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import MOVED_ROW_DELETED, UPDATE_WITHOUT_PRIOR
from airflow_gddl.contract.result import MainCounts, RunWarning, Warnings
from spark_jobs.plan.table_schema import GDDL, RESCUED, ROW_VERSION, TableSchema
from spark_jobs.rules import errors_table
from spark_jobs.rules.arrays import (
    all_false,
    all_true,
    by_name,
    compare_rows,
    flat,
    is_true,
    rows_where,
    sortable,
    sorted_rows,
    table_codes,
    with_values,
)
from spark_jobs.rules.fold import (
    BEGINS_AGAIN,
    COLUMNS_BEFORE_DELETE,
    FIRST,
    FORCED,
    HAS_FORCED,
    LOWEST,
    LOWEST_FORCED,
    MOVE_DELETED,
    ONTO_BATCH,
    ONTO_STORED,
    REPLACES_ROW,
    UNSEEN,
    carried_names,
    newest_state,
    refolds,
    unseen_of,
    with_computed,
    without_prior,
)
from spark_jobs.rules.order import deleted_by, forced_rows, gddl_fields, orders_of, sample_keys, with_gddl
from spark_jobs.rules.stored_columns import stored_schema


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What happened to the replica.

    Attributes:
        late: net changes of the batch that were ignored: what is stored of their key is of a later generation or
            sequence. Full-load rows, forced changes and changes that lost a tie don't count.
    """

    main: MainCounts
    warnings: Warnings = ()
    late: int = 0


ACTION, AT, LATE, IGNORED, UNKNOWN_KEY, DOUBTFUL, MOVE_LOST = (
    f"{GDDL}__{n}" for n in ("action", "at", "late", "ignored", "unknown_key", "doubtful", "move_lost")
)


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """What is stored of the keys of a batch, and perhaps of some others.

    Attributes:
        replica: rows with the keys, `_gddl`, and the columns of `force_update` and of rescued values; other columns may
            be missing.
        tombstones: keys, `_gddl`, and `FORCED` under `force_update`; None: there is no table of them.
        merged: an earlier run has committed the batch's rows, and what was there before them is not stored.
    """

    replica: pa.Table
    tombstones: pa.Table | None = None
    merged: bool = False


def decide(
    net: pa.Table, stored: StoredState, schema: TableSchema, *, partial: bool, refolded: bool = False
) -> pa.Table:
    """Decide the action of each net change.

    Args:
        net: see `fold.net_changes`.
        partial: as for `fold.net_changes`.
        refolded: the rows are the fold of all changes of their keys, and replace stored rows.

    Returns:
        the replica's columns and `_gddl` as the replica has it;
        `ACTION`: `insert`, `update`, `delete`, or null where nothing is to be done; `AT`: row in `stored.replica`;
        `LATE`: the key is to be refolded from all its changes, so that the action doesn't count yet;
        `IGNORED`: what is known of the key is of a later generation or sequence, see `Applied.late`;
        `UNKNOWN_KEY`: the key begins with an update or a delete though nothing is known of it, or an update follows a
            delete (`UPDATE_WITHOUT_PRIOR`);
        `DOUBTFUL`: one of these updates is older than what is stored of the key, so that an earlier batch may have
            brought the insert before it, or the replica has the batch already: all changes of the key tell;
        `MOVE_LOST`: a row was moved to the key while it had another row, and was deleted (`MOVED_ROW_DELETED`);
        where `partial`, the flags of `carried_names`: the row's value replaces the stored one.
    """
    meeting = _Meeting(net, stored, schema, partial=partial, refolded=refolded)
    rows = meeting.rows()
    flags = {
        ACTION: meeting.actions(),
        AT: pa.array(meeting.at, pa.int64(), mask=~meeting.matched),
        LATE: meeting.late,
        IGNORED: meeting.ignored(),
        MOVE_LOST: meeting.move_lost(),
        UNKNOWN_KEY: meeting.unknown(),
        DOUBTFUL: meeting.doubtful(),
    }
    if partial:
        replaced_columns = meeting.replaced()
        if schema.rescues:
            rows = meeting.with_rescued(rows, replaced_columns)
        flags |= replaced_columns
    return pa.table({name: rows.column(name) for name in (*schema.columns, GDDL)} | flags)


def overlaid(decided: pa.Table, replica: pa.Table, schema: TableSchema, *, partial: bool) -> pa.Table:
    """Decided rows with stored values in the columns that their changes don't carry."""
    if not partial or not decided.num_rows:
        return decided
    values, at = {}, flat(decided.column(AT))
    for name, flag in carried_names(schema).items():
        new = flat(decided.column(name))
        old = flat(replica.column(name)).cast(new.type).take(at)
        values[name] = pc.if_else(flat(decided.column(flag)), new, old)
    return with_values(decided, values | _computed(decided, values, schema))


def _computed(decided: pa.Table, values: Mapping[str, pa.Array], schema: TableSchema) -> dict[str, pa.Array]:
    """Computed columns of rows that have some of the columns that they need from their changes, and others stored."""
    results, names = {}, carried_names(schema)
    rows = {key: decided.column(key) for key in schema.keys} | dict(values)
    for name, sources in schema.computed.items():
        some = all_false(decided.num_rows)
        for source in (one for one in sources if one in names):
            some |= _flags(decided, names[source])
        mixed = some & ~_flags(decided, names[name])
        if mixed.any():
            results[name] = with_computed(rows, name, mixed, schema)
    return results


class _Meeting:
    """Net changes matched with the stored rows and tombstones of their keys."""

    def __init__(
        self, net: pa.Table, stored: StoredState, schema: TableSchema, *, partial: bool, refolded: bool
    ) -> None:
        self.net, self.schema, self.partial, self.refolded = net, schema, partial, refolded
        self._merged = stored.merged and not refolded
        self.replica = _heads(stored.replica, net, schema)
        self.tombstones = _heads(net.slice(0, 0) if stored.tombstones is None else stored.tombstones, net, schema)
        self.op = np.asarray(gddl_fields(net)["op"])
        self.at, self.dead_at = (np.full(len(self.op), -1) for _ in range(2))
        self.after_stored, self.after_dead, self._dead_after_stored = (np.ones(len(self.op), np.int8) for _ in range(3))
        self._vanished = np.asarray(gddl_fields(net)["generation"]) < schema.swept
        self._outranked = self._vanished.copy()
        self._overtaken = all_false(len(self.op))
        deletes = self.tombstones if stored.tombstones is None else stored.tombstones
        self._stored = [
            (gddl_fields(self.replica), forced_rows(stored.replica, schema)),
            (gddl_fields(self.tombstones), _flags(deletes, FORCED)),
        ]
        if self.replica.num_rows or self.tombstones.num_rows:
            self._compare()
        self.matched, self.dead = self.at >= 0, self.dead_at >= 0

    def _compare(self) -> None:
        """Match the net changes, and say which are above what is stored of their keys."""
        lowest = [self._lowest] if refolds(self.schema) else []
        orders = orders_of([(gddl_fields(self.net), _flags(self.net, FORCED)), *self._stored, *lowest], self.schema)
        self._match(orders[2])
        self.after_stored = self._sign((orders[0], None), (orders[1], self.at))
        self.after_dead = self._sign((orders[0], None), (orders[2], self.dead_at))
        self._dead_after_stored = self._sign((orders[2], self.dead_at), (orders[1], self.at))
        parts = 1 + len(sortable(gddl_fields(self.net)["sequence"]))  # generation and sequence
        ranks = [order[:parts] for order in orders]
        self._outranked |= self._sign((ranks[0], None), (ranks[1], self.at)) < 0
        self._outranked |= self._sign((ranks[0], None), (ranks[2], self.dead_at)) < 0
        if lowest:
            self._overtaken = self._above_lowest(orders[3], orders[1:3])

    @property
    def _lowest(self) -> tuple[dict[str, pa.Array], np.ndarray]:
        """`_gddl` of the lowest events, and which are forced."""
        return gddl_fields(self.net.select([LOWEST]).rename_columns([GDDL])), _flags(self.net, LOWEST_FORCED)

    def _above_lowest(self, lowest: list[pa.Array], stored: list[list[pa.Array]]) -> np.ndarray:
        """Keys for which something is stored that the batch's lowest event is not above, as a mask over keys."""
        result = all_false(len(self.op))
        for order, at in zip(stored, (self.at, self.dead_at), strict=True):
            result |= (at >= 0) & (self._sign((lowest, None), (order, at)) <= 0)
        return result

    def _match(self, deletes: list[pa.Array]) -> None:
        """The stored row and the highest tombstone of each key; -1: none."""
        key, stored, deleted = table_codes((self.net, self.replica, self.tombstones), self.schema.keys)
        size = max(int(part.max(initial=0)) for part in (key, stored, deleted)) + 1
        place, delete_at = np.full(size, -1), np.full(size, -1)
        place[stored] = np.arange(len(stored))
        rising = sorted_rows([deleted, *deletes])
        delete_at[deleted[rising]] = rising  # of several the last assignment stays
        self.at, self.dead_at = place[key], delete_at[key]

    def _sign(
        self, first: tuple[list[pa.Array], np.ndarray | None], second: tuple[list[pa.Array], np.ndarray | None]
    ) -> np.ndarray:
        """Whether the first is lower (-1), equal or higher (1) in order; 1 where one of them isn't there."""
        signs = np.ones(len(self.op), np.int8)
        there = all_true(len(self.op))
        for _, at in (first, second):
            there &= True if at is None else at >= 0
        if not there.any():
            return signs
        sides = []
        for columns, at in (first, second):
            rows = np.flatnonzero(there) if at is None else at[there]
            sides.append([column.take(rows) for column in columns])
        signs[there] = compare_rows(*sides)
        return signs

    @property
    def beaten(self) -> np.ndarray:
        """A tombstone is newer."""
        result: np.ndarray = self.dead & (self.after_dead < 0) & (not self.refolded)
        return result

    @property
    def soft(self) -> bool:
        return self.schema.spec.delete == "soft"

    @property
    def deleted(self) -> np.ndarray:
        """The row is deleted after it.

        Under soft deletes a beaten change becomes the deleted row that it would be; so does one of a swept generation.
        """
        result: np.ndarray = (self.op == "D") | ((self.beaten | self._vanished) & self.soft)
        return result

    @property
    def newer(self) -> np.ndarray:
        """What becomes of the key is newer than the stored row."""
        after = np.where(self.beaten, self._dead_after_stored, self.after_stored) if self.soft else self.after_stored
        return (after > 0) | self.refolded

    @property
    def columns_before_delete(self) -> np.ndarray:
        return _flags(self.net, COLUMNS_BEFORE_DELETE) if self.partial else all_false(len(self.op))

    @property
    def late(self) -> np.ndarray:
        if self.refolded or not refolds(self.schema):
            return all_false(len(self.op))
        forced = _flags(self.net, HAS_FORCED)
        mask: np.ndarray = forced | self._overtaken if self.schema.partial else forced
        return mask if self.soft else mask & ~self._vanished

    def actions(self) -> pa.Array:
        matched, deleted, newer = self.matched, self.deleted, self.newer
        if self.soft:
            puts = ~matched & (~deleted | self.columns_before_delete)
            chosen = np.select([matched & newer, puts], ["update", "insert"], "")
        else:
            live = ~self.beaten
            choices = [live & matched & newer & deleted, live & matched & newer, live & ~matched & ~deleted]
            chosen = np.select(choices, ["delete", "update", "insert"], "")
            chosen = np.where(self._vanished, "", chosen)
        return pa.array(chosen, pa.string(), mask=chosen == "")

    def ignored(self) -> np.ndarray:
        """What is known of the key is of a later generation or sequence; see `Applied.late`."""
        if self.refolded:
            return all_false(len(self.op))
        forced = _flags(self.net, HAS_FORCED) & ~self._vanished
        outranked = self._outranked
        # All that the batch has of keys that earlier truncates deleted is late.
        if earlier := [one for one in self.schema.truncates if one.batch_id != self.schema.batch_id]:
            outranked = outranked | deleted_by(self.net, earlier, self.schema)
        result: np.ndarray = outranked & (self.op != "R") & ~forced
        return result

    def unknown(self) -> np.ndarray:
        known = self.dead | self._vanished | (self.matched & (not self._merged))
        result: np.ndarray = (self._unseen & ~known) | self._begins_after_delete
        return result

    @cached_property
    def _unseen(self) -> np.ndarray:
        return np.asarray(pc.is_in(self.net.column(FIRST), value_set=pa.array(unseen_of(self.schema))))

    def doubtful(self) -> np.ndarray:
        """Updates after a delete of keys of which something above the batch's lowest event is stored; and, where the
        replica has the batch, all keys that may have been unknown before it."""
        begins, overtaken = self._begins_after_delete, self._overtaken
        if begins.any() and not refolds(self.schema):  # else the lowest events are not compared: few batches have some
            lowest, *stored = orders_of([self._lowest, *self._stored], self.schema)
            overtaken = self._above_lowest(lowest, stored)
        result: np.ndarray = (begins & (overtaken | self._merged)) | (self._unseen & ~self.dead & self._merged)
        return result

    @cached_property
    def _begins_after_delete(self) -> np.ndarray:
        """An update of the key comes next after a delete: a row was moved there, or its insert is not known.

        Where the replica has the batch already, each update that comes first may be one. Where there is a filter, a row
        outside it may come in; then only an update of a part is one, for the rest is null.
        """
        if self.refolded:
            return all_false(len(self.op))
        deleted, before = (self.dead & ~self.matched & ~self.beaten) | self._merged, gddl_fields(self.replica)
        if "deleted" in before and self.replica.num_rows:
            deleted |= self.matched & self.newer & is_true(before["deleted"])[self.at]
        first = np.asarray(pc.equal(self.net.column(FIRST), UNSEEN[0]))
        begins = (deleted & first) | _flags(self.net, BEGINS_AGAIN)
        if self.schema.spec.where:
            begins &= self._lacks_columns() & (self.op == "U")
        result: np.ndarray = begins & ~self._vanished
        return result

    def _lacks_columns(self) -> np.ndarray:
        lacking = all_false(len(self.op))
        for name, flag in carried_names(self.schema).items() if self.partial else ():
            lacking |= ~_flags(self.net, flag) if name != RESCUED else False
        return lacking

    def move_lost(self) -> np.ndarray:
        if MOVE_DELETED not in self.net.column_names:
            return all_false(len(self.op))
        kinds = np.asarray(self.net.column(MOVE_DELETED))
        live, gddl = self.matched.copy(), gddl_fields(self.replica)
        if "deleted" in gddl and self.replica.num_rows:
            live &= ~is_true(gddl["deleted"])[self.at]
        result: np.ndarray = (kinds == ONTO_BATCH) | ((kinds == ONTO_STORED) & live)
        return result

    def rows(self) -> pa.Table:
        """Net changes with `_gddl` as the replica has it."""
        rows = self.net
        if not self.soft:
            return rows
        if self.beaten.any():
            deletes = flat(self.tombstones.column(GDDL)).take(np.where(self.beaten, self.dead_at, 0))
            chosen = pc.if_else(self.beaten, deletes, flat(rows.column(GDDL)))
            rows = with_values(rows, {GDDL: chosen})
        return with_gddl(rows, deleted=pa.array(self.deleted))

    def replaced(self) -> dict[str, np.ndarray]:
        """Columns whose stored value the change replaces; of a new row all."""
        before = gddl_fields(self.replica)
        generation, new_generation = np.asarray(before["generation"]), np.asarray(gddl_fields(self.net)["generation"])
        outlived = self.matched.copy()
        if len(generation):
            outlived &= generation[self.at] < new_generation
            if "deleted" in before:
                outlived |= self.matched & is_true(before["deleted"])[self.at] & ~self._vanished
        starts_anew = (_flags(self.net, REPLACES_ROW) | outlived) & (~self.deleted | self.columns_before_delete)
        every = ~self.matched | starts_anew
        return {flag: every | _flags(self.net, flag) for flag in carried_names(self.schema).values()}

    def with_rescued(self, rows: pa.Table, flags: dict[str, np.ndarray]) -> pa.Table:
        """Net changes with what is rescued of the row after them, which then replaces the stored text.

        Args:
            flags: those of `replaced`; that of the rescued column is set.
        """
        names = carried_names(self.schema)
        unknown = flags[names[RESCUED]]
        flags[names[RESCUED]] = all_true(len(unknown))
        if RESCUED not in self.replica.column_names:
            return rows
        carried = {name.lower(): flags[flag] for name, flag in names.items() if name != RESCUED}
        delivered, stored = (flat(t.column(RESCUED)) for t in (rows, self.replica))
        texts = delivered.to_pylist()
        every = np.logical_and.reduce([*carried.values(), unknown])
        for row in np.flatnonzero(self.matched & ~every):
            before = errors_table.entries(stored[int(self.at[row])].as_py())
            kept = {column: entry for column, entry in before.items() if not carried.get(column, unknown)[row]}
            if kept:
                texts[row] = errors_table.text_of(errors_table.overlaid(kept, errors_table.entries(texts[row])))
        return with_values(rows, {RESCUED: pa.array(texts, pa.string())})


def _flags(rows: pa.Table, name: str) -> np.ndarray:
    """A column of booleans, null as false; all false where it is missing."""
    at = rows.schema.get_field_index(name)
    return all_false(rows.num_rows) if at < 0 else is_true(rows.column(at))


def _heads(rows: pa.Table, net: pa.Table, schema: TableSchema) -> pa.Table:
    """Stored rows with keys and `_gddl` in the types of the net changes, and what other columns they have."""
    there = set(rows.column_names)
    names = [name for name in schema.columns if name in there]
    return by_name(rows, stored_schema(rows, names, net.schema))


KeySample = tuple[int, tuple[str, ...]]
"""Number of keys, and some of them as JSON objects."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a batch does to the replica, for some keys.

    Attributes:
        rows: the replica's columns and `_gddl`, `ACTION` and `AT` of the action.
        deletes: net changes that are deletes: keys, `_gddl`, and `FORCED` under `force_update`.
        unknown_keys: unknown keys whose first change is an update.
        lost_moves: keys of `MOVE_LOST`.
        late: see `Applied.late`.
    """

    rows: pa.Table
    deletes: pa.Table
    unknown_keys: pa.Table
    lost_moves: pa.Table
    late: int

    @property
    def counts(self) -> MainCounts:
        done = {one["values"]: one["counts"] for one in self.rows.column(ACTION).value_counts().to_pylist()}
        inserted, updated, deleted = (done.get(action, 0) for action in ("insert", "update", "delete"))
        return MainCounts(inserted=inserted, updated=updated, deleted=deleted)


def outcome_of(
    net: pa.Table, stored: StoredState, schema: TableSchema, refold: Callable[[pa.Table], pa.Table], *, partial: bool
) -> Outcome:
    """Compare net changes with stored rows and tombstones, and decide what happens to each key.

    Args:
        net: see `fold.net_changes`; `partial`: as there.
        stored: whole rows of the replica.
        refold: `order.events` of all changes of some keys; perhaps of other keys too.
    """
    decided = decide(net, stored, schema, partial=partial)
    late, doubtful = (np.asarray(flat(decided.column(name))) for name in (LATE, DOUBTFUL))
    lost = decided.filter(flat(decided.column(MOVE_LOST))).select(schema.keys)
    parts = [overlaid(_acting(decided, ~late), stored.replica, schema, partial=partial)]
    ignored = int(np.asarray(decided.column(IGNORED)).sum())
    deletes = [tombstones_of(rows_where(net, ~late), schema)]
    happened = refold(rows_where(net, late | doubtful)) if (late | doubtful).any() else None
    if happened is not None and late.any():
        again = refolded(happened, rows_where(net, late), schema)
        parts.append(_replacing(again, stored, schema))
        deletes.append(tombstones_of(again, schema))
    names = [*schema.columns, GDDL, ACTION, AT]
    return Outcome(rows=pa.concat_tables([part.select(names) for part in parts]), deletes=pa.concat_tables(deletes),
                   unknown_keys=_unknown(decided, net, happened, schema), lost_moves=lost, late=ignored)  # fmt: skip


def _unknown(decided: pa.Table, net: pa.Table, happened: pa.Table | None, schema: TableSchema) -> pa.Table:
    """Keys of `UNKNOWN_KEY`, without doubtful ones to which all their changes give a prior row.

    Args:
        net: changes that were decided.
        happened: all changes of doubtful keys; None: there are none.
    """
    unknown, doubtful = (np.asarray(flat(decided.column(name))) for name in (UNKNOWN_KEY, DOUBTFUL))
    if happened is not None and doubtful.any():
        batch_id = gddl_fields(net)["batch_id"][int(np.flatnonzero(doubtful)[0])].as_py()
        lacking, keys = without_prior(happened, schema, batch_id), decided.select(schema.keys)
        mine, theirs = table_codes((keys, lacking), schema.keys)
        unknown = unknown & (~doubtful | np.isin(mine, theirs))
    return decided.filter(unknown).select(schema.keys)


def _replacing(again: pa.Table, stored: StoredState, schema: TableSchema) -> pa.Table:
    """Decided rows of `refolded` keys, which replace stored ones."""
    decided = decide(again, stored, schema, partial=schema.partial, refolded=True)
    every = all_true(decided.num_rows)
    return overlaid(_acting(decided, every), stored.replica, schema, partial=schema.partial)


def folded_again(happened: pa.Table, replica: pa.Table, schema: TableSchema) -> pa.Table:
    """Stored rows that all changes of their keys fold otherwise, as `Outcome.rows`.

    Args:
        happened: see `refolded`.
        replica: whole rows.
    """
    folded = _replacing(refolded(happened, replica, schema), StoredState(replica=replica), schema)
    names = [*schema.columns, GDDL]
    before = replica.take(flat(folded.column(AT)))
    before = pa.table({name: flat(before.column(name)).cast(folded.schema.field(name).type) for name in names})
    mine, theirs = table_codes((folded, before), names)
    return folded.select([*names, ACTION, AT]).filter(mine != theirs)


def replaced(rows: pa.Table, at: np.ndarray, outcome: pa.Table, schema: pa.Schema) -> pa.Table:
    """Stored rows after an outcome: updated ones last, without deleted ones.

    Args:
        at: number in `rows` of each row of `outcome`.
        outcome: `ACTION`, and columns to write where it is `update`; columns that only the table has keep their value.
        schema: of the table.
    """
    kept = all_true(rows.num_rows)
    kept[at] = False
    remaining = rows.filter(kept)
    chosen = pc.equal(outcome.column(ACTION), "update")
    updates = outcome.filter(chosen)
    if not updates.num_rows:
        return remaining
    before = pa.array(at[np.asarray(chosen)])
    return pa.concat_tables([remaining, by_name(updates, schema, kept_of(rows, before))])


def kept_of(stored: pa.Table, at: pa.Array) -> Callable[[str], pa.ChunkedArray]:
    """Columns that only the table has keep their value in changed rows, but for `ROW_VERSION`.

    Args:
        at: number in `stored` of the row that each one changes; null: it is new.
    """

    def values(name: str) -> pa.ChunkedArray:
        if name == ROW_VERSION:
            return pa.chunked_array([pa.nulls(len(at), stored.schema.field(name).type)])
        return stored.column(name).take(at)

    return values


def _acting(decided: pa.Table, counted: np.ndarray) -> pa.Table:
    return rows_where(decided, counted & np.asarray(decided.column(ACTION).is_valid()))


def refolded(happened: pa.Table, keys: pa.Table, schema: TableSchema) -> pa.Table:
    """What all changes of `keys` fold to; see `fold.net_changes`.

    Args:
        happened: `order.events` of all generations; may hold other keys' too.
    """
    swept = 0 if schema.spec.delete == "soft" else schema.swept  # else no row is left of an older generation
    net = newest_state(happened, schema, swept)
    mine, wanted = table_codes((net, keys), schema.keys)
    return net.filter(np.isin(mine, wanted))


def tombstones_of(net: pa.Table, schema: TableSchema) -> pa.Table:
    """Tombstone rows for the deletes among net changes."""
    dead = net.filter(pc.equal(gddl_fields(net)["op"], "D"))
    return dead.select([*schema.keys, GDDL, *([FORCED] if schema.forces else [])])


_MESSAGES = {
    UPDATE_WITHOUT_PRIOR: (
        "updates of keys without a row were stored as delivered, deletes of unknown keys removed nothing; earlier "
        "changes of these keys were not delivered or spell them otherwise, or rows were moved to them"
    ),
    MOVED_ROW_DELETED: (
        "updates moved rows to keys of other rows, which moved away later and took them along: compare these rows with "
        "the source"
    ),
}


def warnings_of(unknown: KeySample, lost: KeySample) -> Warnings:
    """`UPDATE_WITHOUT_PRIOR` and `MOVED_ROW_DELETED`, of the keys that an `Outcome` has."""
    found = zip(_MESSAGES.items(), (unknown, lost), strict=True)
    return tuple(RunWarning(code=code, message=message, count=count, sample=sample)
                 for (code, message), (count, sample) in found if count)  # fmt: skip


def sampled(keys: pa.Table, schema: TableSchema) -> KeySample:
    """The number of these keys, and some of them."""
    return keys.num_rows, sample_keys(keys, schema) if keys.num_rows else ()
