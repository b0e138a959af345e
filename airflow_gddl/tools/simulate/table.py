"""Differences between a replica and the truth."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

Key = tuple[object, ...]
_SAMPLE = 5


@dataclass(frozen=True)
class Differences:
    """How a replica differs from the truth; counts, and a few samples of each.

    Attributes:
        missing, unexpected: keys that only the truth, or only the replica has.
        different: (key, column, value of the truth, value of the replica).
        columns: columns that the replica lacks, or whose values don't convert to the truth's type.
    """

    missing: int = 0
    unexpected: int = 0
    different: int = 0
    columns: tuple[str, ...] = ()
    samples: tuple[object, ...] = ()

    def __bool__(self) -> bool:
        """True when there is any difference."""
        return bool(self.missing or self.unexpected or self.different or self.columns)


def read_replica(path: Path | str, options: Mapping[str, str] | None = None) -> pa.Table:
    """All rows and columns of a Delta table, those behind deletion vectors left out. Needs the package `deltalake`.

    Args:
        path: local, or an `s3://` URL.
        options: storage options of `deltalake`; None: from the environment.
    """
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - needed only by demos

    builder = QueryBuilder().register(
        "replica", DeltaTable(str(path), storage_options=dict(options) if options else None)
    )
    return pa.table(builder.execute("select * from replica").read_all())


def differences(truth: pa.Table, replica: pa.Table, keys: tuple[str, ...]) -> Differences:
    """Compare by key, in the truth's columns and types; other columns of the replica don't matter.

    Args:
        keys: unique in both; empty: the tables are bags of rows, and one that differs is both missing and unexpected.
    """
    aligned, columns = _aligned(truth, replica)
    common = [name for name in truth.schema.names if name not in columns]
    if not keys or any(key in columns for key in keys):
        return _bags(truth.select(common), aligned, columns)
    order = [(key, "ascending") for key in keys]
    truth, aligned = truth.select(common).sort_by(order), aligned.sort_by(order)
    missing, unexpected, kept = _by_key(truth, aligned, keys)
    if missing or unexpected:
        truth, aligned = (_only(table, keys, kept) for table in (truth, aligned))
    different = list(_unequal(truth, aligned, keys))
    samples = (*missing[:_SAMPLE], *unexpected[:_SAMPLE], *different[:_SAMPLE])
    return Differences(len(missing), len(unexpected), len(different), columns, samples)


def _aligned(truth: pa.Table, replica: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """The replica in the truth's columns and types, and the names of those that could not be had."""
    spelt = {name.lower(): name for name in replica.schema.names}
    arrays, lacking = {}, []
    for column in truth.schema:
        values = replica[spelt[column.name.lower()]] if column.name.lower() in spelt else None
        converted = None if values is None else _converted(values, column.type)
        if converted is None:
            lacking.append(column.name)
        else:
            arrays[column.name] = converted
    return pa.table(arrays), tuple(lacking)


def _converted(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    try:
        if pt.is_timestamp(kind) and (pt.is_string(values.type) or pt.is_large_string(values.type)):
            values = values.cast(pa.timestamp("us"))
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _bags(truth: pa.Table, replica: pa.Table, columns: tuple[str, ...]) -> Differences:
    wanted, have = (Counter(map(repr, table.to_pylist())) for table in (truth, replica))
    missing, unexpected = wanted - have, have - wanted
    samples = (*list(missing)[:_SAMPLE], *list(unexpected)[:_SAMPLE])
    return Differences(missing.total(), unexpected.total(), 0, columns, samples)


def _by_key(truth: pa.Table, replica: pa.Table, keys: tuple[str, ...]) -> tuple[list[Key], list[Key], set[Key]]:
    if truth.select(list(keys)).equals(replica.select(list(keys))):
        return [], [], set()
    wanted, have = _keys(truth, keys), _keys(replica, keys)
    in_both = set(wanted) & set(have)
    # A key that the replica holds twice is unexpected once.
    twice = [key for key, again in itertools.pairwise(have) if key == again]
    return [k for k in wanted if k not in in_both], [k for k in have if k not in in_both] + twice, in_both - set(twice)


def _keys(table: pa.Table, keys: tuple[str, ...]) -> list[Key]:
    return list(zip(*(table[key].to_pylist() for key in keys), strict=True))


def _only(table: pa.Table, keys: tuple[str, ...], kept: set[Key]) -> pa.Table:
    return table.filter(pa.array([key in kept for key in _keys(table, keys)], pa.bool_()))


def _unequal(truth: pa.Table, replica: pa.Table, keys: tuple[str, ...]) -> Iterable[tuple[object, ...]]:
    for name in truth.schema.names:
        left, right = truth[name].combine_chunks(), replica[name].combine_chunks()
        if left.equals(right):
            continue
        for at in _unequal_rows(left, right):
            key = tuple(truth[k][at].as_py() for k in keys)
            yield key, name, left[at].as_py(), right[at].as_py()


def _unequal_rows(left: pa.Array, right: pa.Array) -> list[int]:
    if pt.is_nested(left.type):
        return [i for i, (a, b) in enumerate(zip(left.to_pylist(), right.to_pylist(), strict=True)) if a != b]
    same = pc.if_else(pc.and_(left.is_null(), right.is_null()), True, pc.equal(left, right).fill_null(False))
    if pt.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False))
    positions: list[int] = pc.indices_nonzero(pc.invert(same)).to_pylist()
    return positions
