"""The state of a key = the fold of its changes (docs/semantics.md, section 5).

Needs all events of a key together; holds for any partition of the keys.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from spark_jobs.plan.table_schema import GDDL, RESCUED, TableSchema
from spark_jobs.rules.arrays import flat
from spark_jobs.rules.carried import carried, lists, replaces_unknown
from spark_jobs.rules.codes import changes, row_codes
from spark_jobs.rules.order import OrderedEvents, gddl_fields, ordered
from spark_jobs.rules.rescued import Entry, entries, overlaid, text_of

FIRST, FORCED, HAS_FORCED, LOWEST, LOWEST_FORCED, REPLACES_ROW, COLUMNS_BEFORE_DELETE = (
    f"{GDDL}__{n}" for n in ("first", "forced", "has_forced", "lowest", "lowest_forced", "replaces", "before_delete")
)
"""Columns of net changes, see `net_changes`."""
MOVE_DELETED = f"{GDDL}__move_deleted"
"""A column of net changes as well."""
ONTO_BATCH, ONTO_STORED = "batch", "stored"
"""Values of `MOVE_DELETED`."""
UNSEEN = "U"
"""`FIRST` of a key whose lowest event is an update that did not change its key."""


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
    return happened.filter(pa.array((generation >= swept) & (generation == latest[key])))


def net_changes(happened: pa.Table, schema: TableSchema, *, partial: bool) -> pa.Table:
    """One row a key: the state that its events lead to.

    Args:
        happened: see `order.events`; all events of each key, of one generation.
        partial: changes may carry a part of the row.

    Returns:
        the replica's columns, `_gddl` of the last event with its effective sequence, and
        `FIRST`: operation of the lowest event, `M` for an update that changed its key;
        where keys can change, `MOVE_DELETED`: a row was moved to the key and deleted next, though the key may have had
        another row: `ONTO_BATCH`: by the event before it, `ONTO_STORED`: by what is stored; empty: none of this;
        where the table `refolds`, `FORCED` of the last event, `HAS_FORCED` of any, and of the lowest event `LOWEST`
        (its `_gddl`) and `LOWEST_FORCED`;
        where `partial`, the flags of `carried_names`: columns that no event carries keep what is stored, unless
        `REPLACES_ROW`: the events hold a whole row (the flag of the rescued column says whether they replace stored
        values of columns that the table lacks); and `COLUMNS_BEFORE_DELETE`: the columns of a deleted row are those
        of the row that was deleted.
    """
    found = ordered(happened, schema)
    columns = _partial_rows(with_rescued(found, schema), schema) if partial else _whole_rows(found, schema)
    return pa.table(columns | _spans(found, schema))


def _whole_rows(found: OrderedEvents, schema: TableSchema) -> dict[str, pa.Array]:
    last = pa.array(found.at[found.ends])
    return {name: flat(found.rows.column(name)).take(last) for name in (*schema.columns, GDDL)}


def _spans(found: OrderedEvents, schema: TableSchema) -> dict[str, pa.Array]:
    starts, ends = found.starts, found.ends
    first = np.where(found.moved[starts], "M", found.op[starts])
    columns = {FIRST: pa.array(first, pa.string())}
    if schema.before_of_key:
        columns[MOVE_DELETED] = _moves_deleted(found)
    if refolds(schema):
        some = np.logical_or.reduceat(found.forced, starts) if len(starts) else found.forced
        columns |= {
            FORCED: pa.array(found.forced[ends]), HAS_FORCED: pa.array(some),
            LOWEST: flat(found.rows.column(GDDL)).take(pa.array(found.at[starts])),
            LOWEST_FORCED: pa.array(found.forced[starts]),
        }  # fmt: skip
    return columns


def _moves_deleted(found: OrderedEvents) -> pa.Array:
    deletes, starts = found.op == "D", found.starts
    lost, onto = found.moved.copy(), np.zeros(len(found.at), dtype=bool)
    lost[:-1] &= deletes[1:] & ~found.begins[1:]
    lost[-1:] = False
    onto[1:] = ~deletes[:-1] & ~found.begins[1:]
    in_batch = np.logical_or.reduceat(lost & onto, starts) if len(starts) else lost
    stored = lost[starts]
    return pa.array(np.select([in_batch, stored], [ONTO_BATCH, ONTO_STORED], ""), pa.string())


def _partial_rows(found: OrderedEvents, schema: TableSchema) -> dict[str, pa.Array]:
    starts, ends = found.starts, found.ends
    opens, segment_starts = segments(found)
    last = np.repeat(segment_starts[ends], ends - starts + 1)  # where the last segment of the event's key began
    counted = (np.arange(len(found.at)) >= last) & (found.op != "D")
    columns = {key: flat(found.rows.column(key)).take(pa.array(found.at[ends])) for key in (*schema.keys, GDDL)}
    for name, flag in carried_names(schema).items():
        held = np.where(counted & carries(found, schema, name), np.arange(len(found.at)), -1)
        greatest = np.maximum.reduceat(held, starts) if len(starts) else held
        columns[name] = picked(found, name, greatest)
        columns[flag] = pa.array(greatest >= 0)
        if name == RESCUED:
            unknown = counted & _replaces_unknown(found, schema)
            columns[flag] = pa.array(np.logical_or.reduceat(unknown, starts) if len(starts) else unknown)
    columns[REPLACES_ROW] = pa.array(opens[segment_starts[ends]])
    columns[COLUMNS_BEFORE_DELETE] = pa.array(np.logical_or.reduceat(counted, starts) if len(starts) else counted)
    return columns


def picked(found: OrderedEvents, name: str, events: np.ndarray) -> pa.Array:
    """A column's values at these events; -1: null."""
    nothing = events < 0
    at = found.at[np.where(nothing, 0, events)] if len(found.at) else events
    return flat(found.rows.column(name)).take(pa.array(at, pa.int64(), mask=nothing))


def segments(found: OrderedEvents) -> tuple[np.ndarray, np.ndarray]:
    """Whether each event opens a segment of its key, and the event at which its segment began.

    A full-load row or an insert opens one, and so does what follows a delete, but another delete. Each generation
    starts from nothing, too.
    """
    after_delete = np.zeros(len(found.at), dtype=bool)
    after_delete[1:] = (found.op[:-1] == "D") & ~found.begins[1:]
    opens = np.isin(found.op.astype(str), ("R", "I")) | ((found.op != "D") & after_delete)
    generation = np.asarray(gddl_fields(found.rows)["generation"])[found.at]
    begins = opens | found.begins | changes(generation)
    return opens, np.maximum.accumulate(np.where(begins, np.arange(len(found.at)), 0))


def carries(found: OrderedEvents, schema: TableSchema, column: str) -> np.ndarray:
    """Whether each event carries a column; `R` and `I` carry all, a moved row what `events` has found for it."""
    own = carried(found.rows, schema, column)[found.at]
    if found.moved.any():
        own |= found.moved & np.asarray(flat(found.rows.column(column)).is_valid())[found.at]
    result: np.ndarray = own | np.isin(found.op.astype(str), ("R", "I"))
    return result


def with_rescued(found: OrderedEvents, schema: TableSchema) -> OrderedEvents:
    """The events with what is rescued of the row after them in the rescued column, from its segment on.

    A change replaces what is rescued of columns that it carries, and of others adds nothing.
    """
    if not schema.rescues or not len(found.at):
        return found
    texts = flat(found.rows.column(RESCUED)).to_pylist()
    has = np.array([text is not None for text in texts], dtype=bool)[found.at]
    concerned = np.logical_or.reduceat(has, found.starts)[np.cumsum(found.begins) - 1]
    begins = segments(found)[1] == np.arange(len(found.at))
    flags = _RescuedFlags(found, schema)
    state: dict[str, Entry] = {}
    for number in np.flatnonzero(concerned).tolist():
        if begins[number]:
            state = {}
        if found.op[number] != "D":
            delivered = entries(texts[found.at[number]])
            own = {column: entry for column, entry in delivered.items() if flags.takes(column, number)}
            kept = {column: entry for column, entry in state.items() if not flags.replaces(column, number)}
            state = overlaid(kept, own)
            texts[found.at[number]] = text_of(state)
    at = found.rows.schema.get_field_index(RESCUED)
    return replace(found, rows=found.rows.set_column(at, RESCUED, pa.array(texts, pa.string())))


class _RescuedFlags:
    """Which events take and replace rescued values, by columns in lower case, whether or not the table has them."""

    def __init__(self, found: OrderedEvents, schema: TableSchema) -> None:
        self._found, self._schema = found, schema
        self._columns = {name.lower(): name for name in schema.columns}
        self._unknown = _replaces_unknown(found, schema)
        self._known: dict[str, np.ndarray] = {}
        self._listed: dict[str, np.ndarray] = {}

    def replaces(self, column: str, event: int) -> bool:
        if column not in self._columns:
            return bool(self._unknown[event])
        if column not in self._known:
            self._known[column] = carries(self._found, self._schema, self._columns[column])
        return bool(self._known[column][event])

    def takes(self, column: str, event: int) -> bool:
        if column in self._columns or self._found.op[event] != "U":
            return self.replaces(column, event)
        if column not in self._listed:
            self._listed[column] = lists(self._found.rows, self._schema, column)[self._found.at]
        return bool(self._listed[column][event])


def _replaces_unknown(found: OrderedEvents, schema: TableSchema) -> np.ndarray:
    result: np.ndarray = replaces_unknown(found.rows, schema)[found.at] | np.isin(found.op.astype(str), ("R", "I"))
    return result


def newest_state(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Net changes of each key's newest generation, from `swept` on.

    Args:
        happened: see `order.events`; all events of each key, of all generations.
    """
    return net_changes(of_newest_generation(happened, schema, swept), schema, partial=schema.partial)
