"""Masked columns: what is stored instead of a value (`mask: {column: method}`)."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import os
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.connections import MASK_KEY, MASK_KEY_FILE, digest, mask_key
from airflow_gddl.contract.spec import MaskMethod
from airflow_gddl.contract.sql_types import ScalarType, SqlType
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.convert import each
from spark_jobs.rules.texts import MIDNIGHT, as_text, plain_number

_DOUBLE = ScalarType("double")


def masked(values: pa.Array, source: SqlType, method: MaskMethod) -> pa.Array:
    """`hash`: the hexadecimal SHA-256 of `masked_text`, of bytes as they are; `hmac`: with the key; null stays null.

    Raises:
        FatalError: `MASK_KEY_MISSING`.
    """
    if method == "null":
        return pa.nulls(len(values), arrow_type(source))
    if pt.is_string(values.type):
        values = values.cast(pa.binary())  # as delivered, even if not UTF-8
    return each(values, lambda value: hashed(_bytes(value), method), pa.string())


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else masked_text(value).encode()


def masked_text(value: Any) -> str:
    """The one text that equal values have, whatever their types: docs/metadata.md, texts of masks.

    Args:
        value: as `pyarrow` gives it, not null.
    """
    if isinstance(value, float) and math.isfinite(value):
        value = Decimal(int(value)) if value.is_integer() else Decimal(repr(value))
    if isinstance(value, Decimal):
        return plain_number(value)
    if isinstance(value, datetime):
        naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return as_text(naive, _DOUBLE).removesuffix(MIDNIGHT)
    if isinstance(value, dict | list):
        return json.dumps(_parts(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return as_text(value, _DOUBLE)


def _parts(value: Any) -> Any:
    """A nested value with texts in place of its scalars; fields that are null are left out, as of an older struct."""
    if isinstance(value, dict):
        return {name: _parts(part) for name, part in value.items() if part is not None}
    if isinstance(value, list | tuple):  # a map has pairs
        return [_parts(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return None if value is None else masked_text(value)


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
