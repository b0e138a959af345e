"""A batch's outcome for whole keys: late and forced keys are refolded (docs/semantics.md, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import by_name, flat
from spark_jobs.rules.codes import table_codes
from spark_jobs.rules.fold import FORCED, newest_state
from spark_jobs.rules.merge import ACTION, AT, IGNORED, LATE, MOVE_LOST, UNKNOWN_KEY, StoredState, decide, overlaid
from spark_jobs.rules.order import gddl_fields
from spark_jobs.rules.redelivery import sample_keys

_ACTIONS = ("insert", "update", "delete")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Attributes:
    rows: the replica's columns and `_gddl`, `ACTION` and `AT` of the action.
    deletes: net changes that are deletes: keys, `_gddl`, and `FORCED` under `force_update`.
    unknown_keys: unknown keys whose first change is an update.
    lost_moves: keys of `merge.MOVE_LOST`.
    late: see `Applied.late`.
    """

    rows: pa.Table
    deletes: pa.Table
    unknown_keys: pa.Table
    lost_moves: pa.Table
    late: int

    @property
    def counts(self) -> MainCounts:
        found = {action: int(pc.sum(pc.equal(self.rows.column(ACTION), action)).as_py() or 0) for action in _ACTIONS}
        return MainCounts(inserted=found["insert"], updated=found["update"], deleted=found["delete"])


def outcome_of(
    net: pa.Table, stored: StoredState, schema: TableSchema, refold: Callable[[pa.Table], pa.Table], *, partial: bool
) -> Outcome:
    """
    Args:
        net: see `fold.net_changes`; `partial`: as there.
        stored: whole rows of the replica.
        refold: `order.events` of all changes of some keys; perhaps of other keys too.
    """
    decided = decide(net, stored, schema, partial=partial)
    late = flat(decided.column(LATE))
    unknown, lost = (decided.filter(flat(decided.column(c))).select(schema.keys) for c in (UNKNOWN_KEY, MOVE_LOST))
    parts = [overlaid(_acting(decided, ~np.asarray(late)), stored.replica, schema, partial=partial)]
    ignored = int(np.asarray(decided.column(IGNORED)).sum())
    deletes = [tombstones_of(net.filter(pc.invert(late)), schema)]
    if pc.any(late).as_py():
        again = refolded(refold(net.filter(late)), net.filter(late), schema)
        found = decide(again, stored, schema, partial=schema.partial, refolded=True)
        every = np.ones(found.num_rows, dtype=bool)
        parts.append(overlaid(_acting(found, every), stored.replica, schema, partial=schema.partial))
        deletes.append(tombstones_of(again, schema))
    names = [*schema.columns, GDDL, ACTION, AT]
    return Outcome(rows=pa.concat_tables([part.select(names) for part in parts]), deletes=pa.concat_tables(deletes),
                   unknown_keys=unknown, lost_moves=lost, late=ignored)  # fmt: skip


def replaced(rows: pa.Table, at: np.ndarray, outcome: pa.Table, schema: pa.Schema) -> pa.Table:
    """Stored rows after an outcome: updated ones last, without deleted ones.

    Args:
        at: number in `rows` of each row of `outcome`.
        outcome: `ACTION`, and columns to write where it is `update`; columns that only the table has keep their value.
        schema: of the table.
    """
    kept = np.ones(rows.num_rows, dtype=bool)
    kept[at] = False
    left = rows.filter(pa.array(kept))
    chosen = pc.equal(outcome.column(ACTION), "update")
    updates = outcome.filter(chosen)
    if not updates.num_rows:
        return left
    before = rows.take(pa.array(at[np.asarray(chosen)]))
    for name in schema.names:
        if name not in updates.column_names:
            updates = updates.append_column(name, before.column(name))
    return pa.concat_tables([left, by_name(updates, schema)])


def _acting(decided: pa.Table, where: np.ndarray) -> pa.Table:
    return decided.filter(pa.array(where & np.asarray(decided.column(ACTION).is_valid())))


def refolded(happened: pa.Table, keys: pa.Table, schema: TableSchema) -> pa.Table:
    """What all changes of `keys` fold to; see `fold.net_changes`.

    Args:
        happened: `order.events` of all generations; may hold other keys' too.
    """
    net = newest_state(happened, schema, schema.swept)
    mine, wanted = table_codes((net, keys), schema.keys)
    return net.filter(pa.array(np.isin(mine, wanted)))


def tombstones_of(net: pa.Table, schema: TableSchema) -> pa.Table:
    """Tombstone rows for the deletes among net changes."""
    dead = net.filter(pc.equal(gddl_fields(net)["op"], "D"))
    return dead.select([*schema.keys, GDDL, *([FORCED] if schema.forces else [])])


def warnings_of(outcome: Outcome, schema: TableSchema) -> tuple[RunWarning, ...]:
    """`UPDATE_WITHOUT_PRIOR` and `MOVED_ROW_DELETED`."""
    unknown, lost = outcome.unknown_keys, outcome.lost_moves
    return (
        *(update_without_prior(unknown.num_rows, sample_keys(unknown, schema)) if unknown.num_rows else ()),
        *(moved_row_deleted(lost.num_rows, sample_keys(lost, schema)) if lost.num_rows else ()),
    )


def update_without_prior(count: int, sample: tuple[str, ...]) -> tuple[RunWarning, ...]:
    message = "updates of unknown keys were stored as delivered; their earlier changes were not delivered"
    return (RunWarning(code="UPDATE_WITHOUT_PRIOR", message=message, count=count, sample=sample),)


def moved_row_deleted(count: int, sample: tuple[str, ...]) -> tuple[RunWarning, ...]:
    message = (
        "updates moved rows to keys of other rows, which moved away later and took them along: compare these rows with "
        "the source"
    )
    return (RunWarning(code="MOVED_ROW_DELETED", message=message, count=count, sample=sample),)
