"""What the footer of a parquet file states of its column chunks.

Not by pyarrow's `RowGroupMetaData.column`: a footer that contradicts itself, e.g. by a histogram of the wrong length,
ends the process there, because the C++ exception meets code that expects none. Opening or reading the file raises.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

_DEEPEST = 64
_LONGEST_VARINT = 70
_TAIL = 8
"""Bytes after the footer: its length and `PAR1`."""


@dataclass(frozen=True)
class Chunk:
    """A column of a row group, as the footer states it; name and type are those of the schema's column at its place.

    Attributes:
        values: nulls included.
        nulls: null where it isn't stated.
        stored, inflated: bytes.
    """

    values: int
    nulls: int | None
    stored: int
    inflated: int
    has_dictionary: bool


def chunks_of(stream: BinaryIO, columns: int) -> list[list[Chunk]]:
    """The column chunks of each row group.

    Args:
        columns: leaves of the file's schema.

    Raises:
        ValueError: the footer is damaged.
    """
    end = stream.seek(-_TAIL, io.SEEK_END)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(max(end - length, 0))
    try:
        groups = _Compact(stream.read(length)).struct().get(4, ())
        found = [[_chunk(chunk) for chunk in group[1]] for group in groups]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"its footer is damaged: {error!r}") from error
    if any(len(group) != columns for group in found):
        raise ValueError("row groups of its footer have other columns than its schema")
    return found


def _chunk(stored: Mapping[int, Any]) -> Chunk:
    """Numbers are those of parquet.thrift: `ColumnChunk`, `ColumnMetaData`, `Statistics`."""
    meta = stored[3]
    values, inflated, compressed = meta[5], meta[6], meta[7]
    if min(values, inflated, compressed) < 0:
        raise ValueError("its footer states a negative size")
    nulls = meta.get(12, {}).get(3)
    return Chunk(values=values, nulls=nulls, stored=compressed, inflated=inflated, has_dictionary=11 in meta)


class _Compact:
    """Reads Thrift's compact protocol; a structure becomes a dictionary by the numbers of its fields."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            found[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("its footer is nested too deeply")
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            return list(self._elements(depth))
        if kind == 12:
            return self.struct(depth + 1)
        if kind in _FIXED:
            return self._bytes(_FIXED[kind])
        raise ValueError(f"its footer has a value of the unknown type {kind}")

    def _elements(self, depth: int) -> Iterator[Any]:
        head = self._byte()
        count = head >> 4
        if count == 15:
            count = self._varint()
        for _ in range(count):
            yield self._value(head & 15, depth + 1)

    def _byte(self) -> int:
        found = self._data[self._at]
        self._at += 1
        return found

    def _bytes(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) != count:
            raise ValueError("its footer ends too early")
        self._at += count
        return found

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift >= _LONGEST_VARINT:
                raise ValueError("its footer has a number of too many digits")

    def _integer(self) -> int:
        """Zigzag."""
        found = self._varint()
        return (found >> 1) ^ -(found & 1)


_FIXED: Mapping[int, int] = {1: 1, 2: 1, 3: 1, 7: 8, 13: 16}
"""Bytes of types of a fixed length; a boolean within a list has one."""
