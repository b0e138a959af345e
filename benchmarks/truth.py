"""What a replica must hold, worked out without any engine, and whether one holds it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from measuring import WrongResultError
from workload import KEY, OPERATION, SCHEMA, SEQUENCE, Folders

_SHOWN = 3


def check(folders: Folders, side: str) -> int:
    """Compare a side's exported replica with the truth, every column of every row.

    Returns:
        the rows it holds.

    Raises:
        WrongResultError: they differ; names some keys.
    """
    found = exported(folders, side)
    changes = pa.concat_tables(pq.read_table(f) for f in folders.change_files())
    last = last_changes(changes)
    touched = pa.array(last.keys(), pa.int64())
    live = changes.take(pa.array([i for i, op in last.values() if op != "D"], pa.int64())).select(SCHEMA.names)
    _compare(f"{side}: changed keys", live, _only(found, touched, inside=True))
    load = pa.concat_tables(pq.read_table(f) for f in folders.load_files())
    _compare(f"{side}: untouched keys", _only(load, touched, inside=False), _only(found, touched, inside=False))
    return int(found.num_rows)


def exported(folders: Folders, side: str) -> pa.Table:
    """A side's exported replica."""
    return ds.dataset(folders.exported(side), format="parquet").to_table(columns=SCHEMA.names).cast(SCHEMA)


def count_wrong(replica: pa.Table, wanted: pa.Table) -> int:
    """Keys that are missing, too many or there twice, and rows of which any column differs."""
    numbered = replica.append_column("row", pa.array(range(replica.num_rows), pa.int64()))
    once = replica.take(numbered.group_by(KEY).aggregate([("row", "min")])["row_min"])
    missing, surplus = (_only(a, b[KEY], inside=False).num_rows for a, b in ((wanted, once), (once, wanted)))
    got, want = (_only(a, b[KEY], inside=True).sort_by(KEY) for a, b in ((once, wanted), (wanted, once)))
    differs = pa.repeat(False, want.num_rows)
    for column in SCHEMA.names:
        left, right = got[column].combine_chunks(), want[column].combine_chunks()
        unlike = pc.coalesce(pc.not_equal(left, right), pc.xor(left.is_null(), right.is_null()))
        differs = pc.or_(differs, unlike)
    return int(missing + surplus + replica.num_rows - once.num_rows + (pc.sum(differs).as_py() or 0))


def expected(load: pa.Table, changes: pa.Table) -> pa.Table:
    """All rows that the replica must hold, by key."""
    last = last_changes(changes)
    live = changes.take(pa.array([i for i, op in last.values() if op != "D"], pa.int64())).select(SCHEMA.names)
    rest = _only(load, pa.array(last.keys(), pa.int64()), inside=False)
    return pa.concat_tables([live.cast(SCHEMA), rest.select(SCHEMA.names).cast(SCHEMA)]).sort_by(KEY)


def last_changes(changes: pa.Table) -> dict[int, tuple[int, str]]:
    """Row number and operation of each key's change with the greatest sequence; among equal ones, the last one."""
    best: dict[int, tuple[str, int, str]] = {}
    columns = (changes[c].to_pylist() for c in (KEY, SEQUENCE, OPERATION))
    for row, (key, sequence, op) in enumerate(zip(*columns, strict=True)):
        known = best.get(key)
        if known is None or sequence >= known[0]:
            best[key] = (sequence, row, op)
    return {key: (row, op) for key, (_, row, op) in best.items()}


def _only(rows: pa.Table, keys: pa.Array, *, inside: bool) -> pa.Table:
    mask = pc.is_in(rows[KEY], value_set=keys)
    return rows.filter(mask if inside else pc.invert(mask))


def _compare(what: str, expected: pa.Table, replica: pa.Table) -> None:
    if expected.num_rows != replica.num_rows:
        raise WrongResultError(f"{what}: {replica.num_rows} rows, {expected.num_rows} expected")
    left, right = pc.sort_indices(expected[KEY]), pc.sort_indices(replica[KEY])
    keys = expected[KEY].take(left)
    # Column by column: sorted copies of both whole tables would need twice the memory.
    for column in SCHEMA.names:
        wanted, got = expected[column].take(left), replica[column].take(right)
        if not wanted.equals(got):
            raise WrongResultError(f"{what}: {column} differs: {_differences(keys, wanted, got)}")


def _differences(keys: Any, wanted: Any, got: Any) -> str:
    triples = zip(keys.to_pylist(), wanted.to_pylist(), got.to_pylist(), strict=True)
    shown = [f"key {k}: {g!r}, expected {w!r}" for k, w, g in triples if w != g][:_SHOWN]
    return "; ".join(shown)
