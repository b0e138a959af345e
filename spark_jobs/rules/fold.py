"""The state of a key = the fold of its changes (docs/semantics.md, section 5).

Needs all events of a key together; holds for any partition of the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.table_schema import GDDL, RESCUED, TableSchema
from spark_jobs.rules.arrays import (
    all_false,
    changes,
    flat,
    gddl_field,
    row_codes,
    shared_codes,
    table_codes,
    with_values,
)
from spark_jobs.rules.carried import carried, chosen, has_column, lists, replaces_unknown
from spark_jobs.rules.convert import each
from spark_jobs.rules.errors_table import Entry, entries, overlaid, text_of
from spark_jobs.rules.evaluate import recomputed
from spark_jobs.rules.order import OrderedEvents, deleted_by, file_places, gddl_fields, of_rows, ordered, with_gddl
from spark_jobs.rules.positions import are_replayed, position_in_refresh, replayed_position, row_in_file
from spark_jobs.rules.redelivery import new_changes

FIRST, FORCED, HAS_FORCED, LOWEST, LOWEST_FORCED, REPLACES_ROW, BEGINS_AGAIN, COLUMNS_BEFORE_DELETE = (
    f"{GDDL}__{n}"
    for n in ("first", "forced", "has_forced", "lowest", "lowest_forced", "replaces", "begins_again", "before_delete")
)
"""Columns of net changes, see `net_changes`."""
MOVE_DELETED = f"{GDDL}__move_deleted"
"""A column of net changes as well."""
ONTO_BATCH, ONTO_STORED = "batch", "stored"
"""Values of `MOVE_DELETED`."""
UNSEEN = ("U", "D")
"""`FIRST` of a key whose lowest event is an update that did not change its key, or a delete."""


def unseen_of(schema: TableSchema) -> tuple[str, ...]:
    """Those of `UNSEEN` before which a key should be known.

    A row outside the filter, or at the key that an update has left, need not have been there.
    """
    return UNSEEN[:1] if schema.spec.where or schema.before_of_key else UNSEEN


def carried_names(schema: TableSchema) -> dict[str, str]:
    """Columns that are no keys, each with the column of net changes that says whether an event carries it."""
    return {name: f"{GDDL}__carried_{at}" for at, name in enumerate(schema.columns) if name not in schema.keys}


def refolds(schema: TableSchema) -> bool:
    """Whether late or forced keys are refolded from all their changes, since an overlay would differ."""
    return schema.partial or schema.forces


def of_newest_generation(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Events of each key's newest generation, all that its state is made of; none of generations before `swept`."""
    generation = np.asarray(gddl_fields(happened)["generation"]).astype(np.int64)
    key = row_codes([happened.column(k) for k in schema.keys], happened.num_rows)
    latest = np.zeros(happened.num_rows, np.int64)
    np.maximum.at(latest, key, generation)
    return happened.filter((generation >= swept) & (generation == latest[key]))


def net_changes(happened: pa.Table, schema: TableSchema, *, partial: bool) -> pa.Table:
    """One row a key: the state that its events lead to.

    Args:
        happened: see `order.events`; all events of each key, of one generation.
        partial: changes may carry a part of the row.

    Returns:
        the replica's columns, `_gddl` of the last event with its effective sequence, and
        `FIRST`: operation of the lowest event, `M` for an update that changed its key, `T` for a key with a truncate
        among its events;
        where keys can change, `MOVE_DELETED`: a row was moved to the key and deleted next, though the key may have had
        another row: `ONTO_BATCH`: by the event before it, `ONTO_STORED`: by what is stored; empty: none of this;
        `BEGINS_AGAIN`: see `begin_again`, of any event;
        where the table `refolds`, `FORCED` of the last event, `HAS_FORCED` of any, and of the lowest event
        `LOWEST_FORCED`;
        `LOWEST`, `_gddl` of the lowest event where the table `refolds`, or the key begins or `BEGINS_AGAIN` with an
        update; else of the last event;
        where `partial`, the flags of `carried_names`: columns that no event carries keep what is stored, unless
        `REPLACES_ROW`: the events hold a whole row (the flag of the rescued column says whether they replace stored
        values of columns that the table lacks); and `COLUMNS_BEFORE_DELETE`: the columns of a deleted row are those of
        the row that was deleted.
    """
    events = ordered(of_rows(happened, schema), schema)
    columns = _partial_rows(with_rescued(events, schema), schema) if partial else _whole_rows(events, schema)
    return pa.table(columns | _spans(events, schema))


def _whole_rows(events: OrderedEvents, schema: TableSchema) -> dict[str, pa.Array]:
    last = events.at[events.ends]
    columns = {name: flat(events.rows.column(name)) for name in (*schema.columns, GDDL)}
    if np.array_equal(last, np.arange(events.rows.num_rows)):  # each key once: a full load need not be copied
        return columns
    return {name: values.take(last) for name, values in columns.items()}


def _spans(events: OrderedEvents, schema: TableSchema) -> dict[str, pa.Array]:
    starts, ends = events.starts, events.ends
    first = np.where(events.moved[starts], "M", events.op[starts])
    if schema.truncates and len(starts):
        cut = deleted_by(events.rows, schema.truncates, schema)[events.at]
        first = np.where(events.any_of_key(cut), "T", first)
    again = events.any_of_key(begin_again(events, schema))
    columns = {FIRST: pa.array(first, pa.string()), BEGINS_AGAIN: pa.array(again)}
    if schema.before_of_key:
        columns[MOVE_DELETED] = _moves_deleted(events)
    if refolds(schema):
        columns |= {
            FORCED: pa.array(events.forced[ends]), HAS_FORCED: pa.array(events.any_of_key(events.forced)),
            LOWEST_FORCED: pa.array(events.forced[starts]),
        }  # fmt: skip
    asked = refolds(schema) | again | (first == UNSEEN[0])
    gddl, at = flat(events.rows.column(GDDL)), events.at[np.where(asked, starts, ends)]
    columns[LOWEST] = gddl if np.array_equal(at, np.arange(len(gddl))) else gddl.take(at)
    return columns


def begin_again(events: OrderedEvents, schema: TableSchema) -> np.ndarray:
    """Which events are updates that come next after a delete of their key, though they moved no row to it.

    Not an update of a snapshot whose file is older than that of the delete: it was compared with a snapshot that had
    the key, and the delete is of one that came late, between the two.
    """
    result: np.ndarray = events.after_delete & (events.op == "U") & ~events.moved & ~events.forced
    if schema.spec.mode == "snapshots" and result.any():
        places = file_places(gddl_fields(events.rows)["source_file"], schema)[events.at]
        result[1:] &= (places[1:] >= places[:-1]) | (places[1:] == 0)
    return result


def without_prior(happened: pa.Table, schema: TableSchema, batch_id: str) -> pa.Table:
    """Keys of updates of a batch that come next after a delete, by all changes of these keys, and keys that only the
    batch has changed and whose first change should have had a row.

    Args:
        happened: `order.events` of all generations; may hold other keys' too.
    """
    events = ordered(of_rows(of_newest_generation(happened, schema, schema.swept), schema), schema)
    of_batch = np.asarray(pc.equal(gddl_fields(events.rows)["batch_id"], batch_id))[events.at]
    keys, again = events.rows.select(schema.keys), events.at[begin_again(events, schema) & of_batch]
    starts = events.starts
    first = events.at[starts[np.isin(events.op[starts], unseen_of(schema)) & ~events.moved[starts]]]
    earlier = happened.filter(pc.not_equal(gddl_fields(happened)["batch_id"], batch_id))
    mine, theirs = table_codes((keys.take(first), earlier), schema.keys)
    return keys.take(np.union1d(again, first[~np.isin(mine, theirs)]))


def _moves_deleted(events: OrderedEvents) -> pa.Array:
    lost = events.moved.copy()
    lost[:-1] &= (events.op == "D")[1:] & ~events.begins[1:]
    lost[-1:] = False
    in_batch = events.any_of_key(lost & ~events.begins & ~events.after_delete)
    stored = lost[events.starts]
    return pa.array(np.select([in_batch, stored], [ONTO_BATCH, ONTO_STORED], ""), pa.string())


def _partial_rows(events: OrderedEvents, schema: TableSchema) -> dict[str, pa.Array]:
    starts, ends = events.starts, events.ends
    opens, segment_starts = segments(events)
    last = np.repeat(segment_starts[ends], ends - starts + 1)  # where the last segment of the event's key began
    counted = (np.arange(len(events.at)) >= last) & (events.op != "D")
    columns = {key: flat(events.rows.column(key)).take(events.at[ends]) for key in (*schema.keys, GDDL)}
    numbers, latest = np.arange(len(events.at)), {}
    for name, flag in carried_names(schema).items():
        held = np.where(counted & carries(events, schema, name), numbers, -1)
        latest[name] = greatest = np.maximum.reduceat(held, starts) if len(starts) else held
        columns[name] = picked(events, name, greatest)
        columns[flag] = pa.array(greatest >= 0)
        if name == RESCUED:
            unknown = counted & _replaces_unknown(events, schema)
            columns[flag] = pa.array(events.any_of_key(unknown))
    columns |= _computed(columns, latest, schema)
    first = segment_starts[ends]
    columns[REPLACES_ROW] = pa.array(opens[first])
    columns[COLUMNS_BEFORE_DELETE] = pa.array(events.any_of_key(counted))
    return columns


def _computed(
    columns: Mapping[str, pa.Array], latest: Mapping[str, np.ndarray], schema: TableSchema
) -> dict[str, pa.Array]:
    """Computed columns, and their flags, of keys whose last events carry some of the columns that they need.

    Args:
        latest: of each column the last event that carries it; -1: none.
    """
    results, names = {}, carried_names(schema)
    for name, sources in schema.computed.items():
        needed = [source for source in sources if source in latest]
        stale = np.logical_or.reduce([latest[source] > latest[name] for source in needed] or [latest[name] < -1])
        if stale.any():
            every = np.logical_and.reduce([latest[source] >= 0 for source in needed])
            results[name] = with_computed(columns, name, stale, schema)
            results[names[name]] = pa.array(np.where(stale, every, latest[name] >= 0))
    return results


def with_computed(columns: Mapping[str, pa.Array], name: str, where: np.ndarray, schema: TableSchema) -> pa.Array:
    """A computed column, computed again from the others in some rows."""
    at = pa.array(np.flatnonzero(where))
    sources = {source: flat(columns[source]).take(at) for source in schema.computed[name]}
    again = recomputed(name, sources, len(at), schema)
    values = flat(columns[name])
    return chosen(where, again.take(pa.array(np.cumsum(where) - 1, mask=~where)), values)


def picked(ordered: OrderedEvents, name: str, events: np.ndarray) -> pa.Array:
    """A column's values at these events; -1: null."""
    nothing = events < 0
    at = ordered.at[np.where(nothing, 0, events)] if len(ordered.at) else events
    return flat(ordered.rows.column(name)).take(pa.array(at, pa.int64(), mask=nothing))


def segments(ordered: OrderedEvents) -> tuple[np.ndarray, np.ndarray]:
    """Whether each event opens a segment of its key, and the event at which its segment began.

    A whole row opens one (a full-load row; an insert, see `OrderedEvents.whole`), and so does a row that was moved to
    the key: what the key had is another row's. So does what follows a delete, but another delete. Each generation
    starts from nothing, too.
    """
    opens = ordered.whole | ordered.moved | ((ordered.op != "D") & ordered.after_delete)
    generation = np.asarray(gddl_fields(ordered.rows)["generation"])[ordered.at]
    begins = opens | ordered.begins | changes(generation)
    return opens, np.maximum.accumulate(np.where(begins, np.arange(len(ordered.at)), 0))


def held_after(ordered: OrderedEvents, schema: TableSchema) -> dict[str, np.ndarray]:
    """For each column the event whose value the row of the key holds after each event; -1: null."""
    numbers = np.arange(len(ordered.at))
    if not schema.partial:
        return dict.fromkeys(schema.columns, numbers)
    segment_starts = segments(ordered)[1]
    held = dict.fromkeys(schema.keys, numbers)
    for name in (column for column in schema.columns if column not in schema.keys):
        latest = np.where(carries(ordered, schema, name) & (ordered.op != "D"), numbers, -1)
        latest = np.maximum.accumulate(latest) if len(numbers) else latest
        held[name] = np.where(latest >= segment_starts, latest, -1)
    return held


def states_of(ordered: OrderedEvents, held: Mapping[str, np.ndarray], schema: TableSchema) -> dict[str, pa.Array]:
    """Columns of states; a computed one is computed again where a state has a column from a later event than its own.

    Args:
        held: for each column the events whose values the states hold, see `held_after`.
    """
    states, again = {name: picked(ordered, name, events) for name, events in held.items()}, {}
    for name, sources in schema.computed.items() if schema.partial else ():
        later = [held[source] > held[name] for source in sources if source not in schema.keys]
        stale = np.logical_or.reduce(later or [all_false(len(held[name]))])
        if stale.any():
            again[name] = with_computed(states, name, stale, schema)
    return states | again


def carries(ordered: OrderedEvents, schema: TableSchema, column: str) -> np.ndarray:
    """Whether each event carries a column; whole rows carry all, a moved row what `events` has found for it, an insert
    of an adopted table all that its file has."""
    mask = carried(ordered.rows, schema, column)[ordered.at]
    if schema.adopted:
        mask |= (ordered.op == "I") & has_column(ordered.rows, schema, column)[ordered.at]
    if ordered.moved.any():
        mask |= ordered.moved & np.asarray(flat(ordered.rows.column(column)).is_valid())[ordered.at]
    result: np.ndarray = mask | ordered.whole
    return result


def with_rescued(ordered: OrderedEvents, schema: TableSchema) -> OrderedEvents:
    """The events with what is rescued of the row after them in the rescued column, from its segment on.

    A change replaces what is rescued of columns that it carries, and of others adds nothing.
    """
    if not (schema.partial and schema.rescues) or not len(ordered.at):
        return ordered
    texts = flat(ordered.rows.column(RESCUED)).to_pylist()
    has = np.array([text is not None for text in texts], dtype=bool)[ordered.at]
    concerned = ordered.any_of_key(has)[np.cumsum(ordered.begins) - 1]
    begins = segments(ordered)[1] == np.arange(len(ordered.at))
    flags = _RescuedFlags(ordered, schema)
    state: dict[str, Entry] = {}
    for number in np.flatnonzero(concerned).tolist():
        if begins[number]:
            state = {}
        if ordered.op[number] != "D":
            delivered = entries(texts[ordered.at[number]])
            taken = {column: entry for column, entry in delivered.items() if flags.takes(column, number)}
            kept = {column: entry for column, entry in state.items() if not flags.replaces(column, number)}
            state = overlaid(kept, taken)
            texts[ordered.at[number]] = text_of(state)
    return replace(ordered, rows=with_values(ordered.rows, {RESCUED: pa.array(texts, pa.string())}))


class _RescuedFlags:
    """Which events take and replace rescued values, by columns in lower case, whether or not the table has them."""

    def __init__(self, ordered: OrderedEvents, schema: TableSchema) -> None:
        self._ordered, self._schema = ordered, schema
        self._columns = {name.lower(): name for name in schema.columns}
        self._unknown = _replaces_unknown(ordered, schema)
        self._known: dict[str, np.ndarray] = {}
        self._listed: dict[str, np.ndarray] = {}

    def replaces(self, column: str, event: int) -> bool:
        if column not in self._columns:
            return bool(self._unknown[event])
        if column not in self._known:
            self._known[column] = carries(self._ordered, self._schema, self._columns[column])
        return bool(self._known[column][event])

    def takes(self, column: str, event: int) -> bool:
        if column in self._columns or self._ordered.op[event] != "U":
            return self.replaces(column, event)
        if column not in self._listed:
            self._listed[column] = lists(self._ordered.rows, self._schema, column)[self._ordered.at]
        return bool(self._listed[column][event])


def _replaces_unknown(events: OrderedEvents, schema: TableSchema) -> np.ndarray:
    inserts = schema.adopted & (events.op == "I")
    result: np.ndarray = replaces_unknown(events.rows, schema)[events.at] | events.whole | inserts
    return result


def newest_state(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Net changes of each key's newest generation, from `swept` on.

    Args:
        happened: see `order.events`; all events of each key, of all generations.
    """
    return net_changes(of_newest_generation(happened, schema, swept), schema, partial=schema.partial)


_NUMBER = f"{GDDL}__number"


def restamped(changes: pa.Table, batch_id: str, planned_at: str) -> pa.Table:
    """Changes of bounded batches stamped as of the refresh; positions keep the order in which they arrived.

    So are their truncates: see `truncates.restamped`.
    """
    gddl = gddl_fields(changes)
    batch, position = np.asarray(gddl["batch_id"].cast(pa.int64())), np.asarray(gddl["position"])
    positions = pa.array(position_in_refresh(batch, position), pa.int64())
    again = are_replayed(gddl)
    if again.any():
        rows = row_in_file(gddl).filter(again).to_pylist()
        places = pa.array([replayed_position(batch_id, row) for row in rows], pa.int64())
        positions = pc.replace_with_mask(positions, again, places)
    applied = pa.scalar(datetime.fromisoformat(planned_at), gddl["applied_at"].type)
    return with_gddl(
        changes,
        position=positions,
        batch_id=pa.repeat(batch_id, changes.num_rows),
        applied_at=pa.repeat(applied, changes.num_rows),
    )


def held_by(changes: pa.Table, files: Mapping[str, int]) -> pa.Array:
    """Mask of changes that came in one of these files, in its generation."""
    gddl = gddl_fields(changes)
    generations = each(gddl["source_file"], files.get, pa.int32())
    return pc.fill_null(pc.equal(generations, gddl["generation"]), False)


def lacking(changes: pa.Table, others: pa.Table, schema: TableSchema) -> pa.Table:
    """Changes that `others` lacks: a change is known by its content, and a full-load row by its place in its file too.

    Asked the other way round it says which stored changes their files no longer hold.
    """
    numbers = pa.array(np.arange(changes.num_rows))
    known_ones = others.select(changes.column_names).append_column(_NUMBER, pa.nulls(others.num_rows, pa.int64()))
    unknown = new_changes(changes.append_column(_NUMBER, numbers), known_ones, schema)
    tables = (changes, others)
    places, known = shared_codes([_places(t, schema) for t in tables], [t.num_rows for t in tables])
    new = all_false(changes.num_rows)
    new[np.asarray(unknown.column(_NUMBER))] = True
    return changes.filter(new & ~np.isin(places, known))


def _places(rows: pa.Table, schema: TableSchema) -> list[pa.Array]:
    """Content of the changes, and where in their files they are."""
    gddl = gddl_fields(rows)
    content = [rows.column(name) for name in dict.fromkeys((*schema.keys, *schema.content))]
    facts = [gddl[name] for name in ("source_file", "generation", "op", "sequence")]
    return [*content, *facts, row_in_file(gddl)]


def rebuilt_rows(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Rows of the replica: without deleted ones; under soft deletes those that had a row at some time stay, marked.

    Args:
        happened: see `order.events`; all events of each key, of all generations.
    """
    if schema.spec.delete == "hard":
        rows = newest_state(happened, schema, swept)
        return rows.filter(pc.not_equal(gddl_fields(rows)["op"], "D")).select([*schema.columns, GDDL])
    rows = newest_state(happened, schema, 0)
    gddl = gddl_fields(rows)
    dead = pc.or_(pc.equal(gddl["op"], "D"), pc.less(gddl["generation"], swept))
    had, rows = _with_last_columns(rows, happened, schema)
    return with_gddl(rows, deleted=dead).filter(had)


def _with_last_columns(rows: pa.Table, happened: pa.Table, schema: TableSchema) -> tuple[pa.Array, pa.Table]:
    """Whether each key had a row in any generation, and the rows with the columns of the last one it had."""
    had = flat(rows.column(COLUMNS_BEFORE_DELETE))
    rows, generation = rows.select([*schema.columns, GDDL]), gddl_fields(happened)["generation"]
    for older in sorted(pc.unique(generation).to_pylist(), reverse=True):
        if pc.all(had).as_py() is not False:
            break
        net = net_changes(happened.filter(pc.equal(generation, older)), schema, partial=True)
        net = net.filter(net.column(COLUMNS_BEFORE_DELETE))
        mine, theirs = table_codes((rows, net), schema.keys)
        place = np.full(int(max(mine.max(initial=0), theirs.max(initial=0))) + 1, -1)
        place[theirs] = np.arange(net.num_rows)
        at = np.where(np.asarray(had), -1, place[mine])
        rows, had = _columns_from(rows, net, at, schema), pc.or_(had, at >= 0)
    return had, rows


def _columns_from(rows: pa.Table, others: pa.Table, at: np.ndarray, schema: TableSchema) -> pa.Table:
    """The rows with the columns of these rows of `others`; -1: their own."""
    taken, indices = pa.array(at >= 0), pa.array(at, pa.int64(), mask=at < 0)
    names = [name for name in schema.columns if name not in schema.keys]
    values = {n: pc.if_else(taken, flat(others.column(n)).take(indices), flat(rows.column(n))) for n in names}
    return with_values(rows, values)


Changes = frozenset[tuple[str, int]]
"""Rows of the change table by batch and position."""


def needed_changes(happened: pa.Table, schema: TableSchema, before: datetime) -> Changes:
    """Changes applied before a time on which some state depends, the delete of a key update included.

    Args:
        happened: see `order.events`; all events of each key.
    """
    if not schema.keys:
        return frozenset()
    matter = events_that_matter(of_rows(happened, schema), schema)
    return changes_in(matter.filter(applied_before(matter, before)))


def are_superseded(
    rows: pa.Table, needed: Changes, schema: TableSchema, before: datetime, swept: int
) -> pa.ChunkedArray:
    """Which changes were applied before a time, and no state depends on them: later ones undo all they do.

    Args:
        needed: see `needed_changes`, of all keys.
        swept: rows of generations before this one have vanished.
    """
    vanished = pc.less(gddl_field(rows, "generation"), swept)
    if schema.keys:
        unneeded = pc.invert(are_changes(rows, needed))
        vanished = pc.or_(vanished, unneeded) if schema.spec.delete == "hard" else unneeded
    return pc.and_(applied_before(rows, before), vanished)


def applied_before(rows: pa.Table, moment: datetime) -> pa.ChunkedArray:
    """Which rows of a change table or of tombstones were applied before a time."""
    return pc.less(gddl_field(rows, "applied_at"), pa.scalar(moment))


def changes_in(rows: pa.Table) -> Changes:
    """The changes that these rows are."""
    return frozenset(_numbered(rows))


def are_changes(rows: pa.Table, changes: Changes) -> pa.Array:
    """Which rows are one of these changes."""
    return pa.array([change in changes for change in _numbered(rows)], pa.bool_())


def _numbered(rows: pa.Table) -> list[tuple[str, int]]:
    gddl = rows.column(GDDL)
    batches, positions = (pc.struct_field(gddl, name).to_pylist() for name in ("batch_id", "position"))
    return list(zip(batches, positions, strict=True))


def events_that_matter(happened: pa.Table, schema: TableSchema) -> pa.Table:
    """Events on which the state of their key depends: its last one, or with partial changes its last segment.

    The delete before that segment is kept, too: it ends what came before it, should some of that be kept as a part of
    a key update that another key needs.

    Args:
        happened: see `order.events`; all events of each key.
    """
    events = ordered(happened, schema)
    if not len(events.at):
        return happened
    starts, ends = events.starts, events.ends
    last = _last_segments(events) if schema.partial else ends
    return happened.take(events.at[np.arange(len(events.at)) >= np.repeat(last, ends - starts + 1)])


def _last_segments(events: OrderedEvents) -> np.ndarray:
    """The first event of each key's last segment, or the delete before it."""
    last = segments(events)[1][events.ends]
    after_delete = (last > events.starts) & (events.op[np.maximum(last - 1, 0)] == "D")
    result: np.ndarray = last - after_delete
    return result
