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

from airflow_gddl.contract.codes import SNAPSHOT_HELD
from airflow_gddl.contract.errors import QuarantinableError
from airflow_gddl.contract.table_spec import DroppedColumnPolicy
from spark_jobs.rooms.sources.snapshots.exports import compared_columns, data_of, deletable
from spark_jobs.rules.arrays import flat, shared_codes, table_codes


@dataclass(frozen=True, kw_only=True)
class SnapshotChanges:
    """Changes of one snapshot, or of a part of its keys.

    Attributes:
        deleted: keys of deleted rows, in the types of the table; without those that it can't have.
        ops: `I` or `U` of each row.
        rows: columns of the snapshot.
        deletes: how many keys are deleted, of `keys_before` that the snapshot before has.
    """

    deleted: pa.Table
    ops: pa.Array
    rows: pa.Table
    deletes: int
    keys_before: int

    @property
    def count(self) -> int:
        return int(self.deleted.num_rows + self.rows.num_rows)

    def deletes_like_rows(self) -> pa.Table:
        """The deleted keys with the columns of the rows, null, so that all files of a snapshot have one schema."""
        others = [field for field in self.rows.schema if field.name not in self.deleted.column_names]
        nothing = {field.name: pa.nulls(self.deleted.num_rows, field.type) for field in others}
        columns = dict(zip(self.deleted.column_names, self.deleted.columns, strict=True))
        return pa.table({**columns, **nothing})


@dataclass(frozen=True, kw_only=True)
class ComparedBy:
    """How snapshots of a table are compared.

    Attributes:
        keys: columns of the keys, see `exports.key_columns`.
        dropped: what a column means that a snapshot lacks: `null`, else it is not compared.
        known: `column_id` of all columns that came before; empty: nothing came. Where the first of two snapshots
            lacks one of them, the table may have kept older values, and where one that both have is not among them, the
            row has left it out so far: all rows of the second are changes.
        required: `column_id` of columns that a file must have. All rows of a snapshot that lacks one are changes, so
            that the load refuses them.
    """

    keys: Sequence[str]
    dropped: DroppedColumnPolicy = "keep"
    known: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()


def differences(
    before: pa.Table, snapshot: pa.Table, after: pa.Table | None, by: ComparedBy
) -> tuple[SnapshotChanges, SnapshotChanges]:
    """Changes of a snapshot, and those that the one after it gets.

    All rows of a key are compared as a set, so that a key that comes twice is changed where any of its rows is.

    Args:
        before: rows of the snapshot before, see `exports.Export.rows`; no rows, and any columns, where there is none.
        after: rows of the snapshot after; None where there is none.

    Raises:
        QuarantinableError: `SNAPSHOT_HELD`: a column is missing under `dropped_column: fail`.
    """
    if by.dropped == "fail":
        _require_columns(before, snapshot, "it lacks column")
        if after is not None:
            _require_columns(snapshot, after, "the one after it lacks its column")
    pair = _Pair.of(before, snapshot, by)
    changes = pair.changes(pair.changed())
    if after is None:
        return changes, replace(
            changes, deleted=changes.deleted.slice(0, 0), ops=changes.ops.slice(0, 0), rows=changes.rows.slice(0, 0),
            deletes=0,
        )  # fmt: skip
    later, undone = (_Pair.of(one, after, by) for one in (before, snapshot))
    back = undone.changed()
    if not later.all_differ:  # else it is not known which of them had a change
        back = _not_in(back, later.changed(), undone, later)
    return changes, undone.changes(back)


def _require_columns(first: pa.Table, second: pa.Table, what: str) -> None:
    if lost := [name for name in data_of(first) if name not in second.column_names]:
        message = f"{what} {lost[0]}, and the metadata row says dropped_column: fail"
        message += "; write it again, or change the policy"
        raise QuarantinableError(SNAPSHOT_HELD, message)


@dataclass(frozen=True)
class _Pair:
    """Two snapshots with the columns by which they are compared.

    Attributes:
        old_keys, new_keys: codes of the keys of each row, comparable between the two.
        all_differ: values of a column can't be compared: they have another type, or the first lacks it.
    """

    old: pa.Table
    new: pa.Table
    keys: Sequence[str]
    whole: pa.Table
    old_keys: np.ndarray
    new_keys: np.ndarray
    all_differ: bool

    @classmethod
    def of(cls, old: pa.Table, new: pa.Table, by: ComparedBy) -> _Pair:
        names = compared_columns(new)
        whole, lacks = new, bool(by.required - set(data_of(new)))
        if by.dropped == "null":
            for name in compared_columns(old):
                if name not in names:
                    new = new.append_column(name, pa.nulls(new.num_rows, old.schema.field(name).type))
                    names.append(name)
        fresh = bool(old.num_rows) and any(_is_unlike(name, old, by.known) for name in names)
        columns = {name: _as(old, new.schema.field(name)) for name in names}
        unlike = [name for name, values in columns.items() if values is None]
        compared = {n: pa.nulls(old.num_rows, new.schema.field(n).type) if v is None else v for n, v in columns.items()}
        keys = {name: flat(old.column(name)) for name in by.keys}
        old = pa.table({**keys, **compared})
        new = new.select([*by.keys, *names])
        old_keys, new_keys = table_codes([old, new], by.keys)
        return cls(old, new, by.keys, whole, old_keys, new_keys, lacks or fresh or bool(unlike))

    def changed(self) -> np.ndarray:
        """Codes of the keys whose rows differ."""
        if self.all_differ:
            return np.unique(np.concatenate([self.old_keys, self.new_keys]))
        old, new = table_codes([self.old, self.new], self.new.column_names)
        removed, come = ~np.isin(old, new), ~np.isin(new, old)
        return np.unique(np.concatenate([self.old_keys[removed], self.new_keys[come]]))

    def changes(self, keys: np.ndarray) -> SnapshotChanges:
        """Changes that bring the rows of these keys from the first to the second."""
        here = np.flatnonzero(np.isin(self.new_keys, keys))
        known = np.isin(self.new_keys[here], self.old_keys)
        lost, first = np.unique(self.old_keys, return_index=True)
        removed = first[np.isin(lost, keys) & ~np.isin(lost, self.new_keys)]
        return SnapshotChanges(
            deleted=deletable(self.old.select(self.keys).take(pa.array(removed))),
            ops=pa.array(np.where(known, "U", "I").tolist(), pa.string()),
            rows=self.whole.select(data_of(self.whole)).take(pa.array(here)),
            deletes=len(removed), keys_before=len(lost),
        )  # fmt: skip


def _is_unlike(name: str, old: pa.Table, known: frozenset[str]) -> bool:
    """Whether the table may hold another value of a column than the snapshot that it was loaded from."""
    return bool(known) and (name in old.column_names) != (name in known)


def _not_in(keys: np.ndarray, others: np.ndarray, of: _Pair, of_others: _Pair) -> np.ndarray:
    """Those of the keys of one pair that are not among keys of another pair."""
    mine, theirs = _key_rows(of, keys), _key_rows(of_others, others)
    mine_codes, their_codes = table_codes([mine, theirs], of.keys)
    return keys[~np.isin(mine_codes, their_codes)]


def _key_rows(pair: _Pair, codes: np.ndarray) -> pa.Table:
    """A row of the key columns for each code, in their order."""
    both = pa.concat_tables([pair.old.select(pair.keys), pair.new.select(pair.keys)])
    known, first = np.unique(np.concatenate([pair.old_keys, pair.new_keys]), return_index=True)
    return both.take(pa.array(first[np.searchsorted(known, codes)]))


def _as(rows: pa.Table, field: pa.Field) -> pa.Array | None:
    """A column with the type of this field, null where the rows lack it; None: its values have no such type."""
    at = rows.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(rows.num_rows, field.type)
    values = flat(rows.column(at))
    if values.type == field.type:
        return values
    if not len(values):
        return pa.nulls(0, field.type)
    try:
        cast = values.cast(field.type)
        is_as_it_was = values.null_count == len(values) or _are_same(values, cast.cast(values.type))
    except pa.ArrowException:
        return None
    return cast if is_as_it_was and not pa.types.is_null(field.type) else None


def _are_same(values: pa.Array, others: pa.Array) -> bool:
    mine, theirs = shared_codes([[values], [others]], [len(values), len(others)])
    return bool((mine == theirs).all())
