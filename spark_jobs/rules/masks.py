"""Masked columns: what is stored instead of a value (`mask: {column: method}`)."""

from __future__ import annotations

import functools
import hashlib
import os
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.connections import MASK_KEY, MASK_KEY_FILE, digest, mask_key
from airflow_gddl.contract.spec import MaskMethod
from airflow_gddl.contract.sql_types import SqlType
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.convert import each
from spark_jobs.rules.texts import as_text


def masked(values: pa.Array, source: SqlType, method: MaskMethod) -> pa.Array:
    """`hash`: the hexadecimal SHA-256 of the value's text, of bytes as they are; `hmac`: with the key; null stays null.

    Raises:
        FatalError: `MASK_KEY_MISSING`.
    """
    if method == "null":
        return pa.nulls(len(values), arrow_type(source))
    if pt.is_string(values.type):
        values = values.cast(pa.binary())  # as delivered, even if not UTF-8
    return each(values, lambda value: hashed(_bytes(value, source), method), pa.string())


def _bytes(value: Any, source: SqlType) -> bytes:
    return value if isinstance(value, bytes) else as_text(value, source).encode()


def hashed(data: bytes, method: MaskMethod | None) -> str:
    """What a hashed column holds instead of a value.

    Raises:
        FatalError: `MASK_KEY_MISSING`.
    """
    if method == "hmac":
        return digest(_key(os.environ.get(MASK_KEY, ""), os.environ.get(MASK_KEY_FILE, "")), data)
    return hashlib.sha256(data).hexdigest()


@functools.lru_cache(maxsize=1)
def _key(text: str, path: str) -> bytes:
    """A file is read once: jobs and tasks live shorter than keys."""
    return mask_key({MASK_KEY: text, MASK_KEY_FILE: path})
