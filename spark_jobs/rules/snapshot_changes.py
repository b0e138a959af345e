"""What a snapshot of a whole table changes: its differences by key from the snapshots before and after it
(docs/semantics.md, section 20).

Let A, V and B be snapshots that follow each other. The changes of V are its differences from A, at the version of V.
Those of B were its differences from A until V came between: each key that V changes and B did not change has one more
change, back to what B says, at the version of B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.errors import QuarantinableError
from spark_jobs.rules.arrays import flat, is_text, shared_codes, table_codes


@dataclass(frozen=True, kw_only=True)
class SnapshotChanges:
    """Changes of one snapshot, or of a part of its keys.

    Attributes:
        ops: `I`, `U` or `D` of each row.
        rows: columns of the snapshot; of deleted keys as they were before.
        keys_before: how many keys the snapshot before has.
    """

    ops: pa.Array
    rows: pa.Table
    keys_before: int

    @property
    def deletes(self) -> int:
        return int(pc.sum(pc.equal(self.ops, "D")).as_py() or 0)

    def where(self, *, is_delete: bool) -> SnapshotChanges:
        """The deletes alone, or the others."""
        chosen = (pc.equal if is_delete else pc.not_equal)(self.ops, "D")
        return replace(self, ops=self.ops.filter(chosen), rows=self.rows.filter(chosen))


def differences(
    before: pa.Table,
    snapshot: pa.Table,
    after: pa.Table | None,
    keys: Sequence[str],
    columns: frozenset[str] = frozenset(),
) -> tuple[SnapshotChanges, SnapshotChanges]:
    """Changes of a snapshot, and those that the one after it gets.

    All rows of a key are compared as a set, so that a key that comes twice is changed where any of its rows is.

    Args:
        before: rows of the snapshot before; no rows, and any columns, where there is none.
        after: rows of the snapshot after; None where there is none.
        keys: key columns, as the snapshots name them.
        columns: names in lower case of all columns that came before. Where the first of two snapshots lacks one of
            them, the table may have kept older values, so that all rows of the second are changes.

    Raises:
        QuarantinableError: `SNAPSHOT_HELD`: a key column of one can't be compared with that of another.
    """
    own = _Pair.of(before, snapshot, keys, columns)
    changed = own.changed()
    changes = own.changes(changed)
    if after is None:
        return changes, replace(changes, ops=changes.ops.slice(0, 0), rows=changes.rows.slice(0, 0))
    later, undone = (_Pair.of(one, after, keys, columns) for one in (before, snapshot))
    back = undone.changed()
    if not later.all_differ:  # else it is not known which of them had a change
        back = _not_in(back, later.changed(), undone, later, keys)
    return changes, undone.changes(back)


@dataclass(frozen=True)
class _Pair:
    """Two snapshots with the columns of the second.

    Attributes:
        old_keys, new_keys: codes of the keys of each row, comparable between the two.
        all_differ: values of a column can't be compared: they have another type, or the first lacks it.
    """

    old: pa.Table
    new: pa.Table
    old_keys: np.ndarray
    new_keys: np.ndarray
    all_differ: bool

    @classmethod
    def of(cls, old: pa.Table, new: pa.Table, keys: Sequence[str], known: frozenset[str]) -> _Pair:
        lacks = bool(old.num_rows) and any(
            name not in old.column_names and name.lower() in known for name in new.column_names
        )
        columns = {field.name: _as(old, field, is_key=field.name in keys) for field in new.schema}
        nothing = {field.name: pa.nulls(old.num_rows, field.type) for field in new.schema}
        found = {name: nothing[name] if values is None else values for name, values in columns.items()}
        old = pa.table(found, schema=new.schema)
        old_keys, new_keys = table_codes([old, new], keys)
        return cls(old, new, old_keys, new_keys, lacks or None in columns.values())

    def changed(self) -> np.ndarray:
        """Codes of the keys whose rows differ."""
        if self.all_differ:
            return np.unique(np.concatenate([self.old_keys, self.new_keys]))
        old, new = table_codes([self.old, self.new], self.new.column_names)
        gone, come = ~np.isin(old, new), ~np.isin(new, old)
        return np.unique(np.concatenate([self.old_keys[gone], self.new_keys[come]]))

    def changes(self, keys: np.ndarray) -> SnapshotChanges:
        """Changes that bring the rows of these keys from the first to the second.

        Deletes come first: keys that differ here can be one in the table, and of equal sequences the later row counts.
        """
        here = np.flatnonzero(np.isin(self.new_keys, keys))
        known = np.isin(self.new_keys[here], self.old_keys)
        lost, first = np.unique(self.old_keys, return_index=True)
        gone = first[np.isin(lost, keys) & ~np.isin(lost, self.new_keys)]
        ops = [*["D"] * len(gone), *np.where(known, "U", "I").tolist()]
        rows = pa.concat_tables([self.old.take(pa.array(gone)), self.new.take(pa.array(here))])
        return SnapshotChanges(ops=pa.array(ops, pa.string()), rows=rows, keys_before=len(lost))


def _not_in(keys: np.ndarray, others: np.ndarray, of: _Pair, of_others: _Pair, names: Sequence[str]) -> np.ndarray:
    """Those of the keys of one pair that are not among keys of another pair."""
    mine, theirs = _key_rows(of, keys, names), _key_rows(of_others, others, names)
    mine_codes, their_codes = table_codes([mine, theirs], names)
    return keys[~np.isin(mine_codes, their_codes)]


def _key_rows(pair: _Pair, codes: np.ndarray, names: Sequence[str]) -> pa.Table:
    """A row of the key columns for each code, in their order."""
    both = pa.concat_tables([pair.old.select(names), pair.new.select(names)])
    known, first = np.unique(np.concatenate([pair.old_keys, pair.new_keys]), return_index=True)
    return both.take(pa.array(first[np.searchsorted(known, codes)]))


def _as(rows: pa.Table, field: pa.Field, *, is_key: bool) -> pa.Array | None:
    """A column with the type of this field, null where the rows lack it; None: its values have no such type.

    Raises:
        QuarantinableError: `SNAPSHOT_HELD`: it is a key.
    """
    at = rows.schema.get_field_index(field.name)
    if at >= 0 and rows.schema.field(at).type == field.type:
        return flat(rows.column(at))
    if at < 0 or not rows.num_rows:
        return pa.nulls(rows.num_rows, field.type)
    values = flat(rows.column(at))
    try:
        return _cast(values, field.type, is_key=is_key)
    except pa.ArrowException as error:
        if not is_key:
            return None
        what = f"key column {field.name} is {field.type}, and was {values.type} in another snapshot"
        raise QuarantinableError("SNAPSHOT_HELD", what, where=field.name) from error


def _cast(values: pa.Array, kind: pa.DataType, *, is_key: bool) -> pa.Array:
    """The values in another type; an error of pyarrow where it can't hold all of them as they are."""
    if is_key and is_text(values.type) != is_text(kind):
        raise pa.ArrowInvalid("text is no number")  # whose values would all be other keys
    cast = values.cast(kind)
    if values.null_count < len(values) and not _are_same(values, cast.cast(values.type)):
        raise pa.ArrowInvalid("values are rounded")
    return cast


def _are_same(values: pa.Array, others: pa.Array) -> bool:
    mine, theirs = shared_codes([[values], [others]], [len(values), len(others)])
    return bool((mine == theirs).all())
