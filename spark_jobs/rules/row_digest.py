"""A digest of the rows of a table that is the sum of those of its parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.rules.arrays import flat, in_one_form

_HASHED_TOGETHER = 100_000


def rows_digest(rows: pa.Table) -> str:
    """128 bits, as hexadecimal digits, that tables with equal rows share, whatever their order, the width of their
    numbers, the sign of zero, and columns of nulls alone: the sums of both halves of the rows' hashes."""
    names = sorted(rows.column_names)
    halves = np.zeros(2, np.uint64)
    for start in range(0, rows.num_rows if names else 0, _HASHED_TOGETHER):
        part = rows.slice(start, _HASHED_TOGETHER)
        joined = pc.binary_join_element_wise(*(_texts(name, flat(part.column(name))) for name in names), b"")
        hashes = b"".join(hashlib.blake2b(one, digest_size=16).digest() for one in joined.to_pylist())
        halves += np.frombuffer(hashes, ">u8").reshape(-1, 2).sum(axis=0, dtype=np.uint64)
    return _hexadecimal(halves)


def together(digests: Iterable[str]) -> str:
    """The digest of all rows, from those of parts."""
    halves = np.frombuffer(b"".join(map(bytes.fromhex, digests)), ">u8").reshape(-1, 2)
    return _hexadecimal(halves.sum(axis=0, dtype=np.uint64))


def _hexadecimal(halves: np.ndarray) -> str:
    text: str = halves.astype(">u8").tobytes().hex()
    return text


def _texts(name: str, values: pa.Array) -> pa.Array:
    """Values of a column as bytes, each behind the column's name and its own length; of null, none."""
    if pt.is_nested(values.type):
        texts: pa.Array = pa.array(
            [
                None if one is None else json.dumps(_told(one), default=str, sort_keys=True).encode()
                for one in values.to_pylist()
            ],
            pa.binary(),
        )
    elif pt.is_binary(values.type):
        texts = values
    else:
        texts = in_one_form(values).cast(pa.string()).cast(pa.binary())
    mark = f"{len(name)}:{name}".encode()
    lengths = pc.binary_length(texts).cast(pa.string()).cast(pa.binary())
    marked = pc.binary_join_element_wise(pa.scalar(mark), lengths, pa.scalar(b":"), texts, pa.scalar(b""))
    return pc.fill_null(marked, b"")


def _told(value: Any) -> Any:
    """A nested value without fields that are null, those of a type that has grown since; with 0.0 for -0.0."""
    if isinstance(value, dict):
        return {name: _told(one) for name, one in value.items() if one is not None}
    if isinstance(value, float):
        return value + 0.0
    return [_told(one) for one in value] if isinstance(value, (list, tuple)) else value
