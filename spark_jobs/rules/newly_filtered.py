"""A row filter that is new, over stored changes that may carry a part of their row (docs/semantics.md, section 17).

The row that a key has after each change decides. Needs all changes of a key together; holds for any partition of keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import changes as differs
from spark_jobs.rules.arrays import flat
from spark_jobs.rules.carried import chosen
from spark_jobs.rules.evaluate import holds, of_table, outside_filter, tree_of
from spark_jobs.rules.fold import are_changes, carries, changes_in, computed_after, held_after, picked, with_rescued
from spark_jobs.rules.order import (
    ARCHIVED,
    OrderedEvents,
    events,
    gddl_fields,
    moved_rows,
    old_keys,
    ordered,
    with_gddl,
)
from spark_jobs.rules.rewrite import as_left

_OWN = f"{GDDL}__own"


def _place(key: str) -> str:
    return f"{GDDL}__at_{key}"


def places(keys: pa.Schema) -> pa.Schema:
    """The columns of `at_both_keys` by which changes belong together."""
    return pa.schema([pa.field(_place(key.name), key.type) for key in keys])


def at_both_keys(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Changes with `places`: their key, and once more those that moved a row, with the key that it had."""
    moved = moved_rows(changes, schema)
    parts = [at_own_key(changes, schema)]
    if moved.any():
        parts.append(_placed(changes, old_keys(changes, schema), is_own_key=False).filter(pa.array(moved)))
    return pa.concat_tables(parts)


def at_own_key(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Changes with `places`, each once."""
    return _placed(changes, {key: changes.column(key) for key in schema.keys}, is_own_key=True)


def _placed(changes: pa.Table, keys: dict[str, pa.Array | pa.ChunkedArray], *, is_own_key: bool) -> pa.Table:
    for key, values in keys.items():
        changes = changes.append_column(_place(key), values)
    return changes.append_column(_OWN, pa.repeat(is_own_key, changes.num_rows))


def newly_filtered(placed: pa.Table, schema: TableSchema) -> tuple[pa.Table, int]:
    """The changes as the filter leaves them, and the number of updates for which it can't be decided.

    An update that brings the row into the filter is an insert of the whole row, since what came before is left out.

    Args:
        placed: see `at_both_keys`; all changes of each key that is among them.
    """
    is_own = placed.column(_OWN)
    own_changes, others = placed.filter(is_own), placed.filter(pc.invert(is_own))
    if others.num_rows:  # both keys may be of this part
        others = others.filter(pc.invert(are_changes(others, changes_in(own_changes))))
    names = [*schema.change_columns, GDDL]
    rows, count = pa.concat_tables([own_changes.select(names), others.select(names)]), own_changes.num_rows
    counting = np.asarray(pc.not_equal(gddl_fields(rows)["generation"], ARCHIVED))
    states = _States.of(rows, np.flatnonzero(counting), schema)
    rows = states.completed(rows)
    outside = states.of_changes(states.outside) | (~counting & _row_by_row(rows, schema))
    undecided = states.of_changes(states.undecided)[:count]
    rows, outside = rows.slice(0, count), outside[:count]
    rows, leaving = as_left(rows, schema, outside)
    return rows.filter(pa.array(~(outside & ~leaving))), int(undecided.sum())


def _row_by_row(rows: pa.Table, schema: TableSchema) -> np.ndarray:
    """Whether each archived change is outside, or may be: nothing follows from it."""
    outside, undecided = outside_filter(rows, schema, np.ones(rows.num_rows, dtype=bool))
    return outside if undecided.where is None else outside | undecided.where


@dataclass(frozen=True)
class _States:
    """The rows of keys after their events; arrays have an entry for each event, in the order of `ordered`.

    Attributes:
        number: of the change that the event is; -1: none, it follows from one.
        count: of changes.
    """

    schema: TableSchema
    ordered: OrderedEvents
    held: dict[str, np.ndarray]
    number: np.ndarray
    count: int

    @classmethod
    def of(cls, rows: pa.Table, counting: np.ndarray, schema: TableSchema) -> _States:
        """Compute the state of each key after each of its events.

        Args:
            counting: numbers of the changes that are not archived.
        """
        ordered_events = with_rescued(ordered(events(rows, schema), schema), schema)
        number = np.full(ordered_events.rows.num_rows, -1)
        number[: len(counting)] = counting  # `events` has these first, in this order
        return cls(schema, ordered_events, held_after(ordered_events, schema), number[ordered_events.at], rows.num_rows)

    @cached_property
    def rows(self) -> pa.Table:
        values = {name: picked(self.ordered, name, held) for name, held in self.held.items()}
        return pa.table(values | computed_after(self.ordered, self.held, self.schema))

    @cached_property
    def undecided(self) -> np.ndarray:
        """Updates after which a column of the filter is not known: nothing of the key has carried it."""
        unknown = np.zeros(len(self.ordered.at), dtype=bool)
        tree = tree_of(self.schema.spec, self.schema.spec.where or "")
        for name in (spelled for spelled in map(self.schema.spelled, tree.columns) if spelled is not None):
            for column in self.schema.derived_from(name) or (name,):
                unknown |= self.held[column] < 0
        result: np.ndarray = unknown & (self.ordered.op != "D")
        return result

    @cached_property
    def outside(self) -> np.ndarray:
        spec = self.schema.spec
        columns = of_table(self.rows, self.schema.spelled, f"{spec.table}, where")
        inside = holds(columns.condition(tree_of(spec, spec.where or "")))
        result: np.ndarray = (self.ordered.op != "D") & ~self.undecided & ~inside
        return result

    @property
    def entering(self) -> np.ndarray:
        """Updates of a part of the row that bring it into the filter. A moved row starts from its before images."""
        whole = np.ones(len(self.ordered.at), dtype=bool)
        for name in self.schema.columns:
            if name not in self.schema.keys:
                whole &= carries(self.ordered, self.schema, name)
        after_outside = np.zeros(len(self.ordered.at), dtype=bool)
        after_outside[1:] = self.outside[:-1]
        generation = np.asarray(gddl_fields(self.ordered.rows)["generation"])[self.ordered.at]
        after_outside &= ~self.ordered.begins & ~differs(generation)
        result: np.ndarray = after_outside & (self.ordered.op == "U") & ~self.ordered.moved & ~whole & ~self.outside
        return result

    def of_changes(self, events: np.ndarray) -> np.ndarray:
        """A mask of events as one of changes."""
        mask = np.zeros(self.count, dtype=bool)
        mask[self.number[events & (self.number >= 0)]] = True
        return mask

    def completed(self, rows: pa.Table) -> pa.Table:
        """Changes, with those that are `entering` as inserts of the row after them."""
        entering = self.entering & (self.number >= 0)
        if not entering.any():
            return rows
        where, place = self.of_changes(entering), np.zeros(self.count, np.int64)
        place[self.number[entering]] = np.flatnonzero(entering)
        for name in (column for column in self.schema.columns if column not in self.schema.keys):
            state, at = flat(self.rows.column(name)).take(pa.array(place)), rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), chosen(where, state, flat(rows.column(name))))
        return with_gddl(rows, op=pc.if_else(pa.array(where), "I", gddl_fields(rows)["op"]))
