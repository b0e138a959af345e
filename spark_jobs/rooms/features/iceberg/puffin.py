"""Deletion vectors of a Delta table as Iceberg has them: the same bitmaps, each in a Puffin file of its own.

Why copies: docs/decisions/delta-and-ledger.md.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.tables.deletion_vectors import FRAME, Descriptor, framed

_MAGIC = b"PFA1"
_ROW_POSITION = 2_147_483_645
"""Iceberg's number of the column that a vector is of."""


@dataclass(frozen=True)
class VectorFile:
    """A Puffin file of the deleted rows of a data file.

    Attributes:
        path: made of the data file and its vector, so that a vector that stays is not copied again.
        size: of the file, in bytes.
        length: of the bitmap in it, with its size and checksum.
        start: of the bitmap in it.
    """

    path: str
    data_file: str
    size: int
    length: int
    rows: int
    start: int = len(_MAGIC)


def vector_file(folder: str, data_file: str, vector: Descriptor) -> VectorFile:
    """The file of a data file's vector, which need not be there."""
    known = [data_file, vector["storageType"], vector["pathOrInlineDv"], vector.get("offset") or 0]
    path = join(folder, f"dv-{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:40]}.puffin")
    length, rows = int(vector["sizeInBytes"]) + FRAME, int(vector["cardinality"])
    return VectorFile(path, data_file, len(_MAGIC) + length + len(_footer(data_file, length, rows)), length, rows)


def copy_vector(storage: Storage, source: str, vector: Descriptor, file: VectorFile) -> None:
    """Write a file of a vector of a Delta table.

    Raises:
        ValueError: the vector is damaged.
    """
    content = _MAGIC + framed(storage, source, vector)
    storage.write(file.path, content + _footer(file.data_file, file.length, file.rows))


def _footer(data_file: str, length: int, rows: int) -> bytes:
    blob = {
        "type": "deletion-vector-v1", "fields": [_ROW_POSITION], "snapshot-id": -1, "sequence-number": -1,
        "offset": len(_MAGIC), "length": length,
        "properties": {"referenced-data-file": data_file, "cardinality": str(rows)},
    }  # fmt: skip
    text = json.dumps({"blobs": [blob], "properties": {"created-by": "airflow-gddl"}}).encode()
    return _MAGIC + text + struct.pack("<i", len(text)) + bytes(4) + _MAGIC
