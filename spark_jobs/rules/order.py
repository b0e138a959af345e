"""The order of a key's changes, re-deliveries and ties (docs/semantics.md, sections 3, 4, 6 and 7).

`events` holds row by row. `ordered` needs all events of a key together, and holds for any partition of the keys.
`new_changes` needs all changes of an identity (key, sequence, operation) together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.sql_types import ScalarType, SqlType, StructType, parse_type
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.planned_batch import Truncate, number_of
from spark_jobs.plan.sequence import COMMIT_AND_PLACE
from spark_jobs.plan.source_snapshots import SnapshotRun
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import (
    all_false,
    changes,
    codes,
    compare_rows,
    flat,
    gddl_field,
    is_true,
    ranks,
    row_codes,
    shared_codes,
    sortable,
    sorted_rows,
    with_values,
)
from spark_jobs.rules.carried import before_image, by_settings, came_by, completed
from spark_jobs.rules.positions import readings
from spark_jobs.rules.texts import MILLIS, json_writer, object_json, read_json, utc_text

MOVED = f"{GDDL}__moved"
"""Column of events: the update changed its key."""
ARCHIVED = 0
"""Generation of changes that a reload from files has archived: the change table keeps them, and no table follows."""
_SEQUENCE, _FILE = f"{GDDL}__sequence", f"{GDDL}__source"
_LAST_FILE = "\U0010ffff"
_TRUE = ("t", "true", "y", "yes", "1")


def gddl_fields(rows: pa.Table) -> dict[str, pa.Array]:
    """Fields of the `_gddl` of rows."""
    struct = flat(rows.column(GDDL))
    return dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))


def with_gddl(rows: pa.Table, **changed: pa.Array) -> pa.Table:
    """The rows with fields of `_gddl` replaced, or added at its end."""
    parts = gddl_fields(rows) | changed
    return with_values(rows, {GDDL: pa.StructArray.from_arrays(list(parts.values()), names=list(parts))})


def is_of_batch(rows: pa.Table, batch_id: str) -> pa.ChunkedArray:
    """Mask of rows that a batch wrote."""
    return pc.equal(gddl_field(rows, "batch_id"), batch_id)


def for_both_keys(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows for `as_events`: where keys can change, each is assigned to both of its keys. Each change by itself."""
    return events(changes, schema) if schema.before_of_key else changes


def as_events(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows of `for_both_keys` as `events`."""
    return rows if schema.before_of_key else events(rows, schema)


def with_identity(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Changes with `identity_columns`: without a key their sequence, and the file of a full load's rows."""
    if schema.keys:
        return changes
    gddl = gddl_fields(changes)
    of_load = pc.if_else(pc.equal(gddl["op"], "R"), gddl["source_file"], pa.scalar(None, pa.string()))
    return changes.append_column(_SEQUENCE, gddl["sequence"]).append_column(_FILE, of_load)


def identity_columns(schema: TableSchema) -> tuple[str, ...]:
    """Columns of `with_identity` that deliveries of one change have in common."""
    return schema.keys or (_SEQUENCE, _FILE)


def that_count(changes: pa.Table) -> pa.Table:
    """Changes without those that a reload from files has archived: their generation is `ARCHIVED`."""
    archived = pc.equal(gddl_fields(changes)["generation"], ARCHIVED)
    return changes.filter(pc.invert(archived)) if pc.any(archived).as_py() else changes


def generations(of_files: pa.Array, sequence: pa.Array, times: pa.Array, openings: Sequence[SnapshotRun]) -> pa.Array:
    """The generations of changes in a log in which snapshots have opened some.

    A change belongs to the generation of the last snapshot before it in the log. The first transaction after a snapshot
    of PostgreSQL has places without a commit before them, which may precede the snapshot: its time decides.

    Args:
        of_files: generations of their files; `sequence`: places in the log; `times`: commit times.
        openings: oldest first.
    """
    result = of_files
    before = [_is_before(sequence, times, run) for run in openings]
    for run, earlier in zip(openings, before, strict=True):
        follows = pc.and_(pc.equal(result, run.generation - 1), pc.invert(earlier))
        result = pc.if_else(follows, pa.scalar(run.generation, pa.int32()), result)
    for run, earlier in zip(reversed(openings), reversed(before), strict=True):
        precedes = pc.and_(pc.equal(result, run.generation), earlier)
        result = pc.if_else(precedes, pa.scalar(run.generation - 1, pa.int32()), result)
    return result


def _is_before(sequence: pa.Array, times: pa.Array, run: SnapshotRun) -> pa.Array:
    """Whether each change precedes a snapshot; one without a place doesn't."""
    earlier = pc.fill_null(pc.less(sequence, run.position), False)
    if run.since is None or not pc.any(earlier).as_py():
        return earlier
    places = pc.extract_regex(sequence, COMMIT_AND_PLACE)
    alone = pc.equal(pc.struct_field(places, "commit"), pc.struct_field(places, "own"))
    later = pc.greater_equal(times, pa.scalar(datetime.fromisoformat(run.since), times.type))
    return pc.and_(earlier, pc.invert(pc.fill_null(pc.and_(alone, later), False)))


def events(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Changes as events of their keys, and a delete of the old key for each update that changed its key.

    Args:
        changes: rows with the columns of the change table; archived ones are left out.

    Returns:
        the replica's columns, `_gddl` and `MOVED`; moved rows as `completed`.
    """
    changes = that_count(changes)
    moved = moved_rows(changes, schema)
    rows = (completed(changes, schema, moved) if moved.any() else changes).select([*schema.columns, GDDL])
    happened = rows.append_column(MOVED, pa.array(moved, pa.bool_()))
    if moved.any():
        happened = pa.concat_tables([happened, _old_key_deletes(changes.filter(moved), schema)])
    return with_truncates(happened, schema)


def with_truncates(happened: pa.Table, schema: TableSchema) -> pa.Table:
    """Events, and at the end a delete of each key at the first truncate after each of its events, once.

    Where that is a late one, a delete at the first of the others, too: see `of_rows`.
    """
    if not schema.truncates or not happened.num_rows:
        return happened
    placed, passed = happened, np.full(happened.num_rows, -1)
    forced = forced_rows(happened, schema)
    if forced.any():
        passed[forced] = _truncates_passed(happened.filter(forced), schema)
        placed = _with_truncates_at(happened, passed, schema)
        key = row_codes(placed.select(schema.keys).columns, placed.num_rows)
        placed = _with_effective_sequences(placed, key, forced_rows(placed, schema)).slice(0, happened.num_rows)
    numbers = [passed, truncates_after(placed, schema)]
    if late := set(late_truncates(schema.truncates)):
        others = [number for number, one in enumerate(schema.truncates) if one not in late]
        at = truncates_after(placed, replace(schema, truncates=tuple(schema.truncates[number] for number in others)))
        numbers.append(np.where(at < 0, -1, np.array(others)[at]))
    return _with_truncates_at(happened, np.stack(numbers), schema)


def late_truncates(truncates: Sequence[Truncate]) -> tuple[Truncate, ...]:
    """Truncates that came after a later one: versions of the history end at them, and they delete no rows.

    Args:
        truncates: in the order of changes.
    """
    late, earliest = [], None
    for one in reversed(truncates):
        if earliest is not None and earliest < one.batch_id:
            late.append(one)
        earliest = one.batch_id if earliest is None else min(earliest, one.batch_id)
    return tuple(reversed(late))


def of_rows(happened: pa.Table, schema: TableSchema) -> pa.Table:
    """Events that rows are folded from: all but deletes by late truncates, which versions alone follow."""
    late = late_truncates(schema.truncates)
    return happened.filter(~deleted_by(happened, late, schema)) if late else happened


def _with_truncates_at(happened: pa.Table, numbers: np.ndarray, schema: TableSchema) -> pa.Table:
    """Events, and at the end a delete of the key of each at a truncate, once.

    Args:
        numbers: of truncates, one or several for each event; -1: none.
    """
    rows = np.broadcast_to(np.arange(happened.num_rows), numbers.shape)[numbers >= 0]
    numbers = numbers[numbers >= 0]
    keys = happened.select(schema.keys).take(rows)
    group = row_codes([*keys.columns, numbers], len(rows))
    once = np.unique(group, return_index=True)[1]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        name: keys.column(name).take(once) if name in schema.keys
        else pa.nulls(len(once), happened.schema.field(name).type)
        for name in schema.columns
    }  # fmt: skip
    columns[GDDL] = truncates_gddl(happened.schema.field(GDDL).type, schema).take(numbers[once])
    columns[MOVED] = pa.repeat(False, len(once))
    return pa.concat_tables([happened, pa.table(columns, schema=happened.schema)])


def _truncates_passed(forced: pa.Table, schema: TableSchema) -> np.ndarray:
    """Number of the last truncate after each forced change, in generation and sequence, that arrived before it.

    The change is applied nevertheless, at the sequence of that truncate. -1: there is none.
    """
    gddl, stones = gddl_fields(forced), truncates_gddl(forced.schema.field(GDDL).type, schema)
    count, names = forced.num_rows, ("generation", "batch_id", "position")
    rank = ranks([pa.concat_arrays([gddl[name], stones.field(name)]) for name in names], count + len(stones))
    arrived = np.argsort(rank[count:], kind="stable")
    place = np.searchsorted(rank[count:][arrived], rank[:count], side="left")
    last = np.concatenate([[-1], np.maximum.accumulate(arrived)])[place]  # truncates are sorted as the order is
    same = np.asarray(gddl["generation"]) == np.asarray(stones.field("generation"))[last]
    following, equal = _following(forced, schema)
    result: np.ndarray = np.where((last >= 0) & same & (last >= following + equal), last, -1)
    return result


def truncates_gddl(kind: pa.StructType, schema: TableSchema) -> pa.StructArray:
    """`_gddl` of the deletes that truncates are, in a type that the tables have."""
    sequence = parse_type(schema.sequence_type)
    structs = [
        {
            "sequence": read_json(json.loads(one.sequence, parse_float=Decimal), sequence), "op": "D",
            "commit_ts": None if one.commit_ts is None else datetime.fromisoformat(one.commit_ts),
            "source_file": one.source_file, "position": one.position, "batch_id": one.batch_id,
            "generation": one.generation, "applied_at": datetime.fromisoformat(one.applied_at), "schema": one.schema,
            "deleted": True,
        }
        for one in schema.truncates
    ]  # fmt: skip
    return pa.array([{field.name: one.get(field.name) for field in kind} for one in structs], kind)


def _following(rows: pa.Table, schema: TableSchema) -> tuple[np.ndarray, np.ndarray]:
    """Number of the first truncate that is not before each row in generation and sequence, and whether these are equal.

    A row after all has the number of truncates.
    """
    gddl = gddl_fields(rows)
    count, known = rows.num_rows, len(schema.truncates)
    stones = truncates_gddl(rows.schema.field(GDDL).type, schema)
    sides = (
        [gddl["generation"], *sortable(gddl["sequence"])],
        [stones.field("generation"), *sortable(stones.field("sequence"))],
    )
    rank = ranks([pa.concat_arrays(parts) for parts in zip(*sides, strict=True)], count + known)
    mine, of_truncates = rank[:count], rank[count:]
    at = np.searchsorted(of_truncates, mine, side="left")
    return at, (at < known) & (of_truncates[np.minimum(at, known - 1)] == mine)


def truncates_after(rows: pa.Table, schema: TableSchema) -> np.ndarray:
    """Number of the truncate that deletes each stored row or change, the first after it in their order; -1: none.

    Args:
        rows: `_gddl` with effective sequences, and the columns of `force_update`.
    """
    if not schema.truncates or not rows.num_rows:
        return np.full(rows.num_rows, -1)
    at, equal = _following(rows, schema)
    if equal.any():
        same = rows.filter(equal)
        stones = truncates_gddl(same.schema.field(GDDL).type, schema).take(at[equal])
        of_truncates = dict(zip((field.name for field in stones.type), stones.flatten(), strict=True))
        mine, others = orders_of(
            [(gddl_fields(same), forced_rows(same, schema)), (of_truncates, all_false(len(stones)))], schema
        )
        at[equal] += compare_rows(mine, others) >= 0
    at[at == len(schema.truncates)] = -1
    return at


def old_keys(changes: pa.Table, schema: TableSchema) -> dict[str, pa.Array]:
    """Key columns before each change: the before image where there is one."""
    columns = {}
    for key in schema.keys:
        current, before = flat(changes.column(key)), before_image(changes, schema, key)
        columns[key] = current if before is None else pc.coalesce(before.values, current)
    return columns


def moved_rows(changes: pa.Table, schema: TableSchema) -> np.ndarray:
    """Whether each change is an update that changed its key."""
    count = changes.num_rows
    if not schema.before_of_key or not count:
        return all_false(count)
    before = list(old_keys(changes, schema).values())
    old, new = shared_codes([before, [changes.column(k) for k in schema.keys]], [count, count])
    result: np.ndarray = is_true(pc.equal(gddl_fields(changes)["op"], "U")) & (old != new)
    return result


def _old_key_deletes(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """The delete of the old key that each update of a key implies, at the same sequence."""
    columns = old_key_columns(changes, schema)
    columns |= {GDDL: changes.column(GDDL), MOVED: pa.repeat(False, changes.num_rows)}
    return with_gddl(pa.table(columns), op=pa.repeat("D", changes.num_rows))


def old_key_columns(changes: pa.Table, schema: TableSchema) -> dict[str, pa.Array | pa.ChunkedArray]:
    """The replica's columns as the delete of each change's old key has them."""
    before = old_keys(changes, schema)
    known = {name: changes.column(name) for name in schema.forcing} | before
    return {name: known[name] if name in known else pa.nulls(changes.num_rows, changes.schema.field(name).type)
            for name in schema.columns}  # fmt: skip


def forced_rows(rows: pa.Table, schema: TableSchema) -> np.ndarray:
    """Mask of forced rows, which apply regardless of their sequence: a boolean, possibly as text."""
    return by_settings(rows, schema, _forced_rows) if schema.forces else all_false(rows.num_rows)


def _forced_rows(rows: pa.Table, schema: TableSchema) -> np.ndarray:
    column = schema.spelled(schema.spec.force_update)
    if column is None:
        return all_false(rows.num_rows)
    values = flat(rows.column(column))
    if not pt.is_boolean(values.type):
        values = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(values.cast(pa.string()))), value_set=pa.array(_TRUE))
    loads = pc.equal(gddl_fields(rows)["op"], "R")
    result: np.ndarray = is_true(values) & ~is_true(loads)
    return result


def order_parts(
    gddl: dict[str, pa.Array], schema: TableSchema, *, forced: np.ndarray, ends_in_delete: np.ndarray | None = None
) -> list[tuple[str, pa.Array]]:
    """Columns that sort as changes of one key do, the deciding ones first, with the part of the order that they are.

    Where sequences are equal, the order that file names give decides, then the row of the file. Between files whose
    names give none the tie policy does.

    Args:
        forced: see `forced_rows`.
        ends_in_delete: whether the last change of the key and sequence in the same file is a delete; None: each
            change is that last one.
    """
    parts = [("generation", gddl["generation"]), *(("sequence", part) for part in sortable(gddl["sequence"]))]
    if schema.forces:
        parts.append(("force_update", pa.array(forced)))
    places = file_places(gddl["source_file"], schema)
    parts.append(("file_order", pa.array(places)))
    deletes_win = _deletes_win(gddl, schema)
    if deletes_win.any():
        last = np.asarray(pc.equal(gddl["op"], "D")) if ends_in_delete is None else ends_in_delete
        unordered, arrives = places == 0, ~deletes_win & (places == 0)
        first = pa.array((last & unordered) | arrives)
        by_name = pa.array(unordered & ~arrives)
        parts += [("tie_break", first), ("tie_break", pc.if_else(by_name, gddl["source_file"], _LAST_FILE))]
    batch, position = readings(gddl)
    return [*parts, ("batch", batch), ("position", position)]


def _deletes_win(gddl: dict[str, pa.Array], schema: TableSchema) -> np.ndarray:
    """Which changes came under `tie_break: delete_wins`; one under `last_arrival` wins a tie with them."""
    mask = np.full(len(gddl["op"]), schema.spec.tie_break == "delete_wins")
    for settings, ids in schema.earlier.items():
        mask[came_by(gddl["schema"], ids)] = settings.tie_break == "delete_wins"
    return mask


def file_places(paths: pa.Array, schema: TableSchema) -> np.ndarray:
    """Rank of files in the order of their names, from 1; 0 where names give no order."""
    encoded = pc.dictionary_encode(paths, null_encoding="encode")
    orders = [None if path is None else schema.file_order(path) for path in encoded.dictionary.to_pylist()]
    places = {order: at for at, order in enumerate(sorted({o for o in orders if o is not None}), start=1)}
    file_ranks = np.array([0 if order is None else places[order] for order in orders], np.int64)
    result: np.ndarray = file_ranks[np.asarray(encoded.indices)]
    return result


def deleted_by(rows: pa.Table, truncates: Sequence[Truncate], schema: TableSchema) -> np.ndarray:
    """Which rows are deletes of some truncates, by their `_gddl`."""
    gddl = gddl_fields(rows)
    if not truncates or not rows.num_rows:
        return all_false(rows.num_rows)
    stones = truncates_gddl(rows.schema.field(GDDL).type, replace(schema, truncates=tuple(truncates)))
    names = ("batch_id", "position", "source_file", "op")
    sides = [[gddl[name] for name in names], [stones.field(name) for name in names]]
    mine, known = shared_codes(sides, [rows.num_rows, len(stones)])
    return np.isin(mine, known)


@dataclass(frozen=True, kw_only=True)
class OrderedEvents:
    """Events sorted by key and, within a key, by their order; arrays have one entry for each event, so sorted.

    Attributes:
        rows: the events as given, with effective sequences.
        at: row number in `rows`.
        begins: whether the event is the first of its key.
        op: operations; `moved`: see `MOVED`; `forced`: see `forced_rows`.
        whole: whether the event is a whole row, whatever precedes it. An insert of a snapshot is none: columns that
            the snapshot lacks keep what an earlier one has brought since. Nor is one of an adopted table: columns that
            its file lacks keep what the other job has put there.
    """

    rows: pa.Table
    at: np.ndarray
    begins: np.ndarray
    op: np.ndarray
    moved: np.ndarray
    forced: np.ndarray
    whole: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Numbers of the first event of each key."""
        return np.flatnonzero(self.begins)

    @property
    def ends(self) -> np.ndarray:
        """Numbers of the last event of each key."""
        return np.append(self.starts[1:], len(self.at)) - 1 if len(self.at) else self.starts

    @cached_property
    def after_delete(self) -> np.ndarray:
        """Whether the event before each one, of its key, is a delete."""
        mask = all_false(len(self.at))
        mask[1:] = (self.op[:-1] == "D") & ~self.begins[1:]
        return mask

    def any_of_key(self, mask: np.ndarray) -> np.ndarray:
        """For each key, whether the mask holds for any of its events."""
        found: np.ndarray = np.logical_or.reduceat(mask, self.starts) if len(self.at) else mask
        return found


def ordered(happened: pa.Table, schema: TableSchema) -> OrderedEvents:
    """Sort events by key and in the order of changes.

    Args:
        happened: see `events`; all events of each key that is among them.
    """
    count = happened.num_rows
    key = row_codes([happened.column(k) for k in schema.keys], count)
    forced = forced_rows(happened, schema)
    if forced.any():
        happened = _with_effective_sequences(happened, key, forced)
    at = _sorted(happened, schema, key, forced)
    op = np.asarray(gddl_fields(happened)["op"])
    moved = np.asarray(flat(happened.column(MOVED)))
    overlays = schema.adopted or schema.spec.mode == "snapshots"
    return OrderedEvents(
        rows=happened, at=at, begins=changes(key[at]), op=op[at], moved=moved[at], forced=forced[at],
        whole=np.isin(op[at].astype(str), ("R",) if overlays else ("R", "I")),
    )  # fmt: skip


def _sorted(happened: pa.Table, schema: TableSchema, key: np.ndarray, forced: np.ndarray) -> np.ndarray:
    """Row numbers by key and order; keys of one event need no sort."""
    several = np.bincount(key, minlength=1)[key] > 1 if len(key) else all_false(0)
    if not several.any():
        return np.arange(len(key))
    rows = np.flatnonzero(several)
    gddl = {name: part.take(rows) for name, part in gddl_fields(happened).items()}
    lasts = _ends_in_delete(gddl, schema, key[rows], forced[rows])
    parts = order_parts(gddl, schema, forced=forced[rows], ends_in_delete=lasts)
    in_order = rows[sorted_rows([key[rows], *(column for _, column in parts)])]
    return np.concatenate([np.flatnonzero(~several), in_order])


def deciding_parts(ordered_events: OrderedEvents, schema: TableSchema) -> list[str]:
    """For each event the part of `order_parts` by which it is above the one before it; empty for a key's first."""
    gddl = {name: part.take(ordered_events.at) for name, part in gddl_fields(ordered_events.rows).items()}
    lasts = _ends_in_delete(gddl, schema, np.cumsum(ordered_events.begins), ordered_events.forced)
    parts = order_parts(gddl, schema, forced=ordered_events.forced, ends_in_delete=lasts)
    decided = np.full(len(ordered_events.at), "", dtype=object)
    for name, column in parts:
        decided[(decided == "") & changes(codes(column)) & ~ordered_events.begins] = name
    return [str(name) for name in decided]


def _ends_in_delete(gddl: dict[str, pa.Array], schema: TableSchema, key: np.ndarray, forced: np.ndarray) -> np.ndarray:
    """Whether the last change of the same key, sequence and file is a delete."""
    deletes = np.asarray(pc.equal(gddl["op"], "D"))
    deciding = deletes & _deletes_win(gddl, schema)
    if not deciding.any() or not (deciding & (file_places(gddl["source_file"], schema) == 0)).any():
        return all_false(len(key))
    same = [pa.array(key), gddl["generation"], gddl["sequence"], pa.array(forced), gddl["source_file"]]
    group = row_codes(same, len(key))
    at = sorted_rows([group, *readings(gddl)])
    last = all_false(int(group.max()) + 1)
    last[group[at]] = deletes[at]  # of several the last assignment stays
    result: np.ndarray = last[group]
    return result


def _with_effective_sequences(happened: pa.Table, key: np.ndarray, forced: np.ndarray) -> pa.Table:
    """Forced changes with the highest earlier sequence of their key and generation, or their own."""
    gddl = gddl_fields(happened)
    rank = ranks(sortable(gddl["sequence"]), len(key))
    group = row_codes([key, gddl["generation"]], len(key))
    at = sorted_rows([group, gddl["batch_id"], gddl["position"]])
    base = group[at] * (len(key) + 1)
    greatest = np.maximum.accumulate(rank[at] + base) - base
    holder = np.zeros(len(key) + 1, np.int64)
    holder[rank] = np.arange(len(key))
    picked = np.arange(len(key))
    picked[at] = np.where(forced[at], holder[greatest], picked[at])
    return with_gddl(happened, sequence=gddl["sequence"].take(picked))


def orders_of(parts: Sequence[tuple[dict[str, pa.Array], np.ndarray]], schema: TableSchema) -> list[list[pa.Array]]:
    """Columns of `order_parts` of changes of several tables, each the last of its key and sequence in its file.

    Args:
        parts: fields of `_gddl`, and which rows are forced.
    """
    names = ["generation", "sequence", "op", "source_file", "batch_id", "position"]
    names += ["schema"] if schema.earlier else []
    gddl = {name: pa.concat_arrays([fields[name] for fields, _ in parts]) for name in names}
    columns = order_parts(gddl, schema, forced=np.concatenate([flags for _, flags in parts]))
    ends = np.cumsum([len(flags) for _, flags in parts]).tolist()
    return [[c.slice(end - len(f), len(f)) for _, c in columns] for end, (_, f) in zip(ends, parts, strict=True)]


SAMPLE = 5


def sample_keys(rows: pa.Table, schema: TableSchema) -> tuple[str, ...]:
    """A few keys as JSON objects, least first, each once."""
    return tuple(keys_json(least_keys(rows, schema), schema))


def least_keys(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """A few keys, least first, each once; nested ones, which have no order, by their JSON text. Without keys, none."""
    keys = rows.select(schema.keys)
    if not schema.keys:
        return keys.slice(0, 0)
    at = np.unique(row_codes(keys.columns, rows.num_rows), return_index=True)[1]
    keys = keys.take(at)
    if any(pt.is_nested(kind) for kind in keys.schema.types):
        texts = keys_json(keys, schema)
        return keys.take(pa.array(sorted(range(len(texts)), key=texts.__getitem__)[:SAMPLE], pa.int64()))
    return keys.sort_by([(k, "ascending") for k in schema.keys]).slice(0, SAMPLE)


def keys_json(rows: pa.Table, schema: TableSchema) -> list[str]:
    """Keys as JSON objects."""
    kinds = {column.name: column.type for column in schema.data}
    writers = {k: json_writer(kinds[k], times=MILLIS) for k in schema.keys}
    keys = rows.select(schema.keys).to_pylist()
    return [object_json(((k, row[k], w) for k, w in writers.items()), nulls=False) for row in keys]


def recorded_files(parts: Iterable[pa.Table], gddl: SqlType) -> list[RecordedFile]:
    """Each file and generation, as often as it is found in another part.

    Args:
        parts: rows of a change table; only `_gddl` is needed. Archived ones are left out.
        gddl: type of that.
    """
    return [file for part in parts for file in _of_part(part, gddl)]


def _of_part(rows: pa.Table, gddl: SqlType) -> Iterable[RecordedFile]:
    sequence = gddl.field("sequence") if isinstance(gddl, StructType) else None
    write = json_writer(ScalarType("string") if sequence is None else sequence.type)
    fields = gddl_fields(that_count(rows.select([GDDL])))
    file = row_codes([fields["source_file"], fields["generation"]], len(fields["generation"]))
    names = ("applied_at", "batch_id", "commit_ts")
    latest, newest, last = (_ends(file, sortable(fields[name]))[1] for name in names)
    lowest, highest = _ends(file, sortable(fields["sequence"]))
    read_by, positions = readings(fields)
    read = _ends(file, [read_by])[1]
    columns = [fields["source_file"].take(latest), fields["generation"].take(latest), fields["applied_at"].take(latest),
               fields["batch_id"].take(newest), read_by.take(read), positions.take(read),
               pa.array(np.unique(file, return_counts=True)[1]), fields["sequence"].take(highest),
               fields["sequence"].take(lowest), fields["commit_ts"].take(last)]  # fmt: skip
    for path, generation, applied_at, batch_id, reader, position, count, greatest, least, time in zip(
        *(c.to_pylist() for c in columns), strict=True
    ):
        yield RecordedFile(
            path=path,
            generation=generation,
            applied_at=applied_at.isoformat(),
            batch=number_of(batch_id),
            read_by=reader,
            position=position,
            rows=count,
            max_sequence=None if greatest is None else write(greatest),
            min_sequence=None if least is None else write(least),
            max_commit_ts=None if greatest is None or time is None else utc_text(time),
        )


def _ends(group: np.ndarray, values: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """For each group, in order, the rows with its least and its greatest value; null counts as least."""
    at = sorted_rows([group, *values])
    begins = changes(group[at])
    return at[begins], at[np.roll(begins, -1)]
