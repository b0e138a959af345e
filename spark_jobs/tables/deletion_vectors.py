"""Deletion vectors of Delta's protocol: rows of a data file that are deleted, though the file still holds them.

Read in a file of vectors or in the log itself, written in files; the bitmap is Roaring's portable form for 64 bits.
"""

from __future__ import annotations

import base64
import re
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage

Descriptor = Mapping[str, Any]
"""`deletionVector` of an `add` or `remove` action."""
_MAGIC = 1_681_511_377
_HEAD, _SIZE, _CHECKSUM = struct.Struct("<i"), struct.Struct(">i"), struct.Struct(">I")
FRAME = _SIZE.size + _CHECKSUM.size
"""Bytes around a bitmap in a file of vectors."""
_VERSION = b"\x01"
_LARGEST_SHARE = 0.5
"""Of a file's rows, that a vector names; beyond it the file is written again."""
PLAIN_PATH = re.compile(r"[A-Za-z0-9_.=/-]*")
_ENCODED_UUID = 20
"""Characters; those before name a folder."""
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


@cache
def are_known() -> bool:
    """Whether this job has the library of the bitmaps."""
    return find_spec("pyroaring") is not None


def suits(path: str, deleted: int, rows: int) -> bool:
    """Whether a vector names the deleted rows of a file: few of its rows, and readers find the vector by this path.

    Where the folder of its partition has special characters, Polars 2.1 compares a path that is escaped with one that
    is not, and shows the deleted rows.
    """
    return deleted <= rows * _LARGEST_SHARE and PLAIN_PATH.fullmatch(path) is not None


def rows_of(storage: Storage, table: str, vector: Descriptor) -> np.ndarray:
    """Numbers of the deleted rows in their file, from 0, rising.

    Raises:
        ValueError: it is damaged, or of another form.
    """
    from pyroaring import BitMap64  # noqa: PLC0415 - a job elsewhere may lack it, and then leaves such tables to Spark

    data = _bitmap(storage, table, vector)
    if _HEAD.unpack_from(data)[0] != _MAGIC:
        raise ValueError(f"a deletion vector of {table} has another form than Roaring's portable one")
    numbers = np.fromiter(BitMap64.deserialize(data[_HEAD.size :]), np.int64)
    if len(numbers) != vector["cardinality"]:
        raise ValueError(f"a deletion vector of {table} has {len(numbers)} rows, not {vector['cardinality']}")
    return numbers


def framed(storage: Storage, table: str, vector: Descriptor) -> bytes:
    """A vector's bitmap with its size before it and its checksum behind it, as files of vectors hold it.

    Raises:
        ValueError: it is damaged.
    """
    data = _bitmap(storage, table, vector)
    return _SIZE.pack(len(data)) + data + _CHECKSUM.pack(zlib.crc32(data))


def _bitmap(storage: Storage, table: str, vector: Descriptor) -> bytes:
    """A vector's bitmap alone.

    Raises:
        ValueError: its checksum is wrong.
    """
    if vector["storageType"] == "i":
        padded = base64.b85decode(vector["pathOrInlineDv"].encode().translate(bytes.maketrans(_Z85, _B85)))
        return padded[: vector["sizeInBytes"]]
    return _unframed(CONTENTS.read(storage, path_of(table, vector), _place_of(vector)))


class Contents:
    """Files of vectors, whose content never changes, as this process has read them.

    A commit's vectors are in one file. The first of a file is read by itself. Once another of the same file is asked
    for, the file is read whole and kept, so that the bytes read grow with the vectors and not with their square.
    """

    def __init__(self, most: int) -> None:
        """Keep files of vectors in memory, the least recently used ones are dropped first.

        Args:
            most: bytes that are kept; a larger file is read by vector.
        """
        self._most = most
        self._kept: OrderedDict[str, bytes | None] = OrderedDict()
        self._lock = threading.Lock()  # files of a table are searched by threads

    def read(self, storage: Storage, path: str, place: slice) -> bytes:
        content = self._kept.get(path)
        if content is None and path in self._kept:
            content = storage.read(path, self._most + 1)
            self._keep(path, content if len(content) <= self._most else b"")
        elif content is None:
            self._keep(path, None)
        if not content or place.stop > len(content):
            with storage.open_input(path) as stream:
                stream.seek(place.start)
                return stream.read(place.stop - place.start)
        return content[place]

    def _keep(self, path: str, content: bytes | None) -> None:
        with self._lock:
            self._kept[path] = content
            while len(self._kept) > _MOST_FILES or sum(len(one or b"") for one in self._kept.values()) > self._most:
                self._kept.popitem(last=False)


_MOST_FILES = 1000
CONTENTS = Contents(32 * 1024**2)


def _place_of(vector: Descriptor) -> slice:
    """Where a vector is in its file, with its size and checksum around it."""
    start = int(vector.get("offset") or 0)
    return slice(start, start + int(vector["sizeInBytes"]) + FRAME)


def _unframed(content: bytes) -> bytes:
    size = _SIZE.unpack_from(content)[0]
    data = content[_SIZE.size : _SIZE.size + size]
    if zlib.crc32(data) != _CHECKSUM.unpack_from(content, _SIZE.size + size)[0]:
        raise ValueError("the checksum of a deletion vector is wrong")
    return data


def path_of(table: str, vector: Descriptor) -> str:
    """Path of the file that holds a vector."""
    text = str(vector["pathOrInlineDv"])
    if vector["storageType"] == "p":
        return text
    folder, encoded = text[:-_ENCODED_UUID], text[-_ENCODED_UUID:]
    number = UUID(bytes=base64.b85decode(encoded.encode().translate(bytes.maketrans(_Z85, _B85))))
    return join(table, folder, _name(number)) if folder else join(table, _name(number))


def written(storage: Storage, table: str, deleted: Sequence[np.ndarray]) -> list[Descriptor]:
    """A file of the vectors of data files.

    Args:
        deleted: numbers of the deleted rows of each data file.
    """
    from pyroaring import BitMap64  # noqa: PLC0415 - as above

    number, content = uuid4(), bytearray(_VERSION)
    descriptors: list[Descriptor] = []
    encoded = base64.b85encode(number.bytes).translate(bytes.maketrans(_B85, _Z85)).decode()
    for rows in deleted:
        data = _HEAD.pack(_MAGIC) + BitMap64(rows.tolist()).serialize()
        descriptors.append(
            {"storageType": "u", "pathOrInlineDv": encoded, "offset": len(content), "sizeInBytes": len(data),
             "cardinality": len(rows)}
        )  # fmt: skip
        content += _SIZE.pack(len(data)) + data + _CHECKSUM.pack(zlib.crc32(data))
    storage.write(join(table, _name(number)), bytes(content))
    return descriptors


def _name(number: UUID) -> str:
    return f"deletion_vector_{number}.bin"
