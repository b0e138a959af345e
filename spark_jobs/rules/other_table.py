"""A replica and another table, compared by key: rows that are equal, as the replica's were earlier, or different.

Needs all rows and all changes of a key together; holds for any partition of the keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.sql_types import SqlType
from airflow_gddl.contract.table_spec import lowered
from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import all_false, by_name, fields_of, flat, table_codes
from spark_jobs.rules.fold import held_after, states_of, with_rescued
from spark_jobs.rules.order import as_events, gddl_fields, keys_json, ordered
from spark_jobs.rules.stored_columns import change_schema
from spark_jobs.rules.sweep import unmarked
from spark_jobs.rules.texts import rows_json
from spark_jobs.rules.verify import EXTRA, differing_keys

THEIRS, OURS, CHANGES = "theirs", "ours", "changes"
"""Names of tables for the rule: the other one, the replica, and its change table."""
MOST_LISTED = 10_000
"""Keys of one range whose rows are listed."""
_ALIVE = f"{GDDL}__alive"
"""Column of states: there is a row."""


@dataclass(frozen=True, kw_only=True)
class DifferentRow:
    """A key whose rows differ; rows as JSON, null where there is none."""

    key: str
    ours: str | None
    theirs: str | None


@dataclass(frozen=True, kw_only=True)
class OtherTableFindings:
    """Numbers of rows and keys.

    Attributes:
        rows, their_rows: of the replica and of the other table.
        equal: keys whose rows are equal.
        behind: keys whose row in the other table is as the replica's was earlier, or lacks as it did.
        behind_keys: some of them.
        different: keys whose rows differ otherwise; `listed` has them, or the first `MOST_LISTED` of each range.
    """

    rows: int
    their_rows: int
    equal: int
    behind: int
    behind_keys: tuple[str, ...]
    different: int
    listed: tuple[DifferentRow, ...]


@dataclass(frozen=True, kw_only=True)
class OtherTableRule:
    """Compares the rows of a range of keys; sent to tasks.

    Attributes:
        columns: of the replica that are compared, keys among them.
        spelled: each as the other table spells it.
        first: id of the batch that has the rows which the replica began with.
        shown: keys that are behind and are named.
        marks: the other table has `_gddl`, which may mark rows deleted.
    """

    schema: TableSchema
    columns: tuple[str, ...]
    spelled: Mapping[str, str]
    first: str
    shown: int
    marks: bool = False

    @property
    def read(self) -> list[str]:
        """Columns that are read of the other table."""
        return [*self.spelled.values(), *([GDDL] if self.marks else [])]

    @property
    def kind(self) -> pa.Schema:
        kinds = change_schema(self.schema)
        return fields_of(kinds, self.columns)

    def theirs(self, rows: pa.Table) -> pa.Table:
        renamed = {theirs: ours for ours, theirs in self.spelled.items()}
        rows = unmarked(rows) if self.marks else rows
        rows = rows.select(list(renamed)).rename_columns(list(renamed.values()))
        return by_name(rows, self.kind)

    def ours(self, rows: pa.Table) -> pa.Table:
        return by_name(unmarked(rows), self.kind)

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> dict[str, Any]:  # noqa: ARG002 - writes nothing
        theirs, ours = rows[THEIRS], rows[OURS]
        keys, sorts = differing_keys(ours, theirs, self.columns, self.schema.keys)
        keys = keys.select(self.schema.keys)
        behind = self._are_behind(keys, sorts, theirs, rows[CHANGES])
        names = keys_json(keys, self.schema)
        odd = np.flatnonzero(~behind)[:MOST_LISTED]
        listed = self._listed(keys.take(odd), ours, theirs)
        return {
            "rows": ours.num_rows, "their_rows": theirs.num_rows,
            "equal": self._keys(ours, theirs) - keys.num_rows, "behind": int(behind.sum()),
            "behind_keys": [names[at] for at in np.flatnonzero(behind)[: self.shown]],
            "different": int((~behind).sum()), "listed": [[row.key, row.ours, row.theirs] for row in listed],
        }  # fmt: skip

    def _keys(self, ours: pa.Table, theirs: pa.Table) -> int:
        codes = np.concatenate(table_codes((ours, theirs), self.schema.keys))
        return len(np.unique(codes))

    def _are_behind(self, keys: pa.Table, sorts: np.ndarray, theirs: pa.Table, changes: pa.Table) -> np.ndarray:
        """Whether their row of each key is one that ours was earlier; where they have none, whether we had none."""
        if not keys.num_rows:
            return all_false(0)
        happened = as_events(changes, self.schema)
        wanted, mine = table_codes((keys, happened), self.schema.keys)
        happened = happened.filter(np.isin(mine, wanted))
        states = _states_of(happened, self.schema, self.kind)
        first = np.asarray(gddl_fields(happened)["batch_id"].to_numpy(zero_copy_only=False)) == self.first
        began = happened.select(self.schema.keys).filter(pa.array(first, pa.bool_()))
        alive = np.asarray(states.column(_ALIVE))
        their_keys = table_codes((keys, theirs), self.schema.keys)
        rows = theirs.filter(np.isin(their_keys[1], their_keys[0]))
        known, held = table_codes((rows, states), self.columns)
        was = np.isin(known, held[alive])
        at_key, at_row, at_state, at_began = table_codes((keys, rows, states, began), self.schema.keys)
        # A key that the other table has twice is none that the replica had, whatever its rows are.
        once = np.bincount(at_row, minlength=int(at_key.max()) + 1)[at_key] == 1
        absent = np.isin(at_key, at_state[~alive]) | ~np.isin(at_key, at_began)
        return np.where(sorts == EXTRA, absent, once & np.isin(at_key, at_row[was]))

    def _listed(self, keys: pa.Table, ours: pa.Table, theirs: pa.Table) -> list[DifferentRow]:
        sides = [self._texts(keys, side) for side in (ours, theirs)]
        names = keys_json(keys, self.schema)
        return [DifferentRow(key=n, ours=sides[0].get(n), theirs=sides[1].get(n)) for n in names]

    def _texts(self, keys: pa.Table, rows: pa.Table) -> dict[str, str]:
        wanted, mine = table_codes((keys, rows), self.schema.keys)
        rows = rows.filter(np.isin(mine, wanted))
        kinds: Mapping[str, SqlType] = {column.name: column.type for column in self.schema.data}
        hidden = lowered(self.schema.spec.mask)
        shown = [(n, flat(rows.column(n)), kinds[n]) for n in self.columns if n.lower() not in hidden]
        texts: dict[str, str] = {}
        for key, text in zip(keys_json(rows, self.schema), rows_json(shown, nulls=True), strict=True):
            texts[key] = text if key not in texts else f"{texts[key]} and {text}"
        return texts


def _states_of(happened: pa.Table, schema: TableSchema, kind: pa.Schema) -> pa.Table:
    """The row of each key after each of its events, in the columns of `kind`, and `_ALIVE`.

    Args:
        happened: see `order.events`; all events of each key.
    """
    events = with_rescued(ordered(happened, schema), schema)
    states = pa.table(states_of(events, held_after(events, schema), schema))
    return by_name(states, kind).append_column(_ALIVE, pa.array(events.op != "D", pa.bool_()))


def findings_of(parts: Sequence[Mapping[str, Any]], shown: int) -> OtherTableFindings:
    """Findings of whole tables, from the reports of all ranges of keys.

    Args:
        parts: what `OtherTableRule` reports.
        shown: keys that are behind and are named.
    """
    sums = {name: sum(part[name] for part in parts) for name in ("rows", "their_rows", "equal", "behind", "different")}
    listed = sorted((row for part in parts for row in part["listed"]), key=lambda row: str(row[0]))
    behind: Sequence[str] = sorted(key for part in parts for key in part["behind_keys"])[:shown]
    rows = tuple(DifferentRow(key=key, ours=ours, theirs=theirs) for key, ours, theirs in listed)
    return OtherTableFindings(**sums, behind_keys=tuple(behind), listed=rows)
