"""Numbers that sequences hold as text, in a form in which they compare as text; see `plan.sequence`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.sequence import DECIMAL, DIGITS, EPOCH, HEXADECIMAL, LSN, LSN_DIGITS, PREFIX


def normal_form(values: pa.Array) -> pa.Array:
    """Text of the known forms in its normal form, other text as it is.

    Args:
        values: of type string.
    """
    upper = pc.utf8_upper(values)
    bare = pc.replace_substring_regex(upper, PREFIX, "")
    whole = pc.if_else(pc.match_substring_regex(upper, HEXADECIMAL), _padded(bare, DIGITS), None)
    return pc.coalesce(_lsn(upper), _decimal(upper), whole, values)


def width(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """How long texts are that must be equally long; digits after a decimal point don't count."""
    bare = pc.replace_substring_regex(values, EPOCH, "")
    return pc.utf8_length(pc.replace_substring_regex(bare, DECIMAL, r"\1"))


def _lsn(upper: pa.Array) -> pa.Array:
    parts = pc.extract_regex(upper, LSN.replace("(", "(?P<high>", 1).replace("/(", "/(?P<low>", 1))
    high, low = (_padded(pc.struct_field(parts, name), LSN_DIGITS) for name in ("high", "low"))
    return pc.binary_join_element_wise(high, low, "/")


def _decimal(upper: pa.Array) -> pa.Array:
    parts = pc.extract_regex(upper, DECIMAL.replace("(", "(?P<whole>", 1).replace(".(", ".(?P<part>", 1))
    part = pc.utf8_rtrim(pc.struct_field(parts, "part"), "0")
    joined = pc.binary_join_element_wise(_padded(pc.struct_field(parts, "whole"), DIGITS), part, ".")
    return pc.utf8_rtrim(joined, ".")


def _padded(digits: pa.Array, least: int) -> pa.Array:
    """Longer ones stay as long as they are."""
    return pc.utf8_lpad(digits, least, "0")


def normal_json(sequence: str | None, columns: Sequence[str]) -> str | None:
    """A sequence as the ledger keeps it, with the text of these columns in its normal form."""
    value = None if sequence is None else json.loads(sequence)
    if isinstance(value, dict):
        return json.dumps({name: _normal(part) if name in columns else part for name, part in value.items()})
    return json.dumps(_normal(value)) if isinstance(value, str) and columns else sequence


def _normal(value: Any) -> Any:
    return normal_form(pa.array([value], pa.string()))[0].as_py() if isinstance(value, str) else value
