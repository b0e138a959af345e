"""Text in sequences: the forms whose order is known, and the normal form in which they compare; see `plan.sequence`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.sequence import (
    DECIMAL,
    DIGIT_GROUPS,
    DIGITS,
    DIGITS_ALONE,
    EPOCH,
    EXPONENT,
    HEX_GROUPS,
    HEXADECIMAL,
    LSN,
    LSN_DIGITS,
    MONTH,
    OTHER_DATES,
    POWER,
    PREFIX,
    TIME,
    ULID,
    UUID,
    UUID_BY_TIME,
)
from spark_jobs.rules.text_grammar import moment

_FRACTION, _MICROS = 9, 10**6


def normal_form(values: pa.Array, *, instants: bool = True) -> pa.Array:
    """Text of the known forms in its normal form, other text as it is.

    Args:
        values: of type string.
        instants: times too; else they stay as they came.
    """
    upper = pc.utf8_upper(values)
    bare = pc.replace_substring_regex(upper, PREFIX, "")
    whole = pc.if_else(pc.match_substring_regex(upper, HEXADECIMAL), _padded(bare, DIGITS), None)
    times = _instant(upper) if instants else pa.nulls(len(values), pa.string())
    return pc.coalesce(_lsn(upper), _decimal(upper), whole, times, values)


def forms(values: pa.Array, *, instants: bool = True) -> pa.Array:
    """The form of each text, by which it compares with others of the form; empty where its order is not known.

    Args:
        values: of type string, as delivered or in normal form.
        instants: times are kept as instants; else only times of one shape and zone compare.
    """
    upper = pc.utf8_upper(values)
    found = pa.nulls(len(values), pa.string())
    for pattern, name in ((MONTH, "month"), (LSN, "lsn"), (DECIMAL, "decimal"), (DIGITS_ALONE, "digits"),
                          (POWER, "power"), (HEXADECIMAL, "hex")):  # fmt: skip
        found = pc.coalesce(found, pc.if_else(pc.match_substring_regex(upper, pattern), name, None))
        if not found.null_count:
            return found
    if instants:
        times = pc.if_else(pc.is_valid(_instant(upper)), "time", None)
    else:
        times = pc.if_else(pc.match_substring_regex(upper, TIME), _shape_of_time(upper), None)
    found = pc.coalesce(found, times, pc.if_else(pc.match_substring_regex(values, ULID), "ulid", None), _groups(values))
    return pc.if_else(pc.is_valid(values), pc.fill_null(found, ""), None)


def nano_text(times: pa.Array, past: pa.Array) -> pa.Array:
    """Times in microseconds, and their nanoseconds past them, as text with all digits."""
    micros = times.cast(pa.timestamp("us")).cast(pa.int64())
    whole = pc.divide(micros, _MICROS)  # rounded to zero
    left = pc.subtract(micros, pc.multiply(whole, _MICROS))
    before = pc.less(left, 0)
    whole = pc.if_else(before, pc.subtract(whole, 1), whole)
    left = pc.if_else(before, pc.add(left, _MICROS), left)
    digits = pc.add(pc.multiply(left, 1000), pc.fill_null(past, 0))  # null: of a file in microseconds
    return _written(whole, pc.utf8_lpad(digits.cast(pa.string()), _FRACTION, "0"))


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


def _instant(upper: pa.Array) -> pa.Array:
    """Times as UTC with nine digits after the second; null where the text is no time."""
    parts = pc.extract_regex(upper, TIME)
    if parts.null_count == len(parts):
        return pa.nulls(len(upper), pa.string())
    day, clock, second, fraction, sign, hours, minutes = (
        pc.struct_field(parts, name) for name in ("day", "clock", "second", "fraction", "sign", "hours", "minutes")
    )
    clock = pc.if_else(pc.equal(clock, ""), "00:00", clock)
    second = pc.if_else(pc.equal(second, ""), "00", second)
    local = pc.binary_join_element_wise(day, pc.binary_join_element_wise(clock, second, ":"), " ")
    ahead = pc.add(pc.multiply(_number(hours), 3600), pc.multiply(_number(minutes), 60))
    ahead = pc.if_else(pc.equal(sign, "-"), pc.negate(ahead), ahead)
    seconds = pc.subtract(_seconds(local), ahead)
    return _written(seconds, pc.utf8_rpad(fraction, _FRACTION, "0"))


def _number(digits: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64())


def _seconds(local: pa.Array) -> pa.Array:
    """Seconds since 1970; null where a month has no such day."""
    try:
        found = local.cast(pa.timestamp("s"))
    except pa.ArrowInvalid:
        read = [None if text is None else moment(text) for text in local.to_pylist()]
        found = pa.array([None if value is None else int(value.timestamp()) for value in read], pa.int64())
    return found.cast(pa.int64())


def _written(seconds: pa.Array, digits: pa.Array) -> pa.Array:
    text = pc.replace_substring(seconds.cast(pa.timestamp("s")).cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(text, digits, "."), "Z", "")


def _shape_of_time(upper: pa.Array) -> pa.Array:
    """Digits of the time as zeros, its zone as it is."""
    zone = pc.struct_field(pc.extract_regex(upper, TIME), "zone")
    shape = pc.replace_substring_regex(upper, "[0-9]", "0")
    return pc.binary_join_element_wise("time", shape, zone, " ")


def _groups(values: pa.Array) -> pa.Array:
    """Groups of digits, or of hexadecimal digits in one case, between marks; and identifiers that begin with a time."""
    lower, upper = pc.utf8_lower(values), pc.utf8_upper(values)
    random = pc.and_not(pc.match_substring_regex(upper, UUID), pc.match_substring_regex(upper, UUID_BY_TIME))
    refused = pc.or_(random, pc.match_substring_regex(upper, f"{OTHER_DATES}|{EXPONENT}"))
    digits = pc.match_substring_regex(values, DIGIT_GROUPS)
    hexadecimal = pc.match_substring_regex(upper, HEX_GROUPS)
    case = pc.if_else(pc.equal(values, lower), "lower", pc.if_else(_is_upper(values), "upper", None))
    kind = pc.if_else(digits, "digits", pc.if_else(hexadecimal, case, None))
    pattern = pc.if_else(digits, pc.replace_substring_regex(values, "[0-9]", "0"),
                         pc.replace_substring_regex(lower, "[0-9a-f]", "0"))  # fmt: skip
    found = pc.binary_join_element_wise("groups", kind, pattern, " ")
    return pc.if_else(pc.and_(refused, pc.is_valid(values)), None, found)


def _is_upper(values: pa.Array) -> pa.Array:
    """The `x` of a prefix may be lower."""
    bare = pc.replace_substring(values, "0x", "0X")
    return pc.equal(bare, pc.utf8_upper(bare))


def _padded(digits: pa.Array, least: int) -> pa.Array:
    """Longer ones stay as long as they are."""
    return pc.utf8_lpad(digits, least, "0")


def normal_json(sequence: str | None, columns: Sequence[str]) -> str | None:
    """A sequence as the ledger keeps it, with the text of these columns in its normal form."""
    value = None if sequence is None else json.loads(sequence)
    if isinstance(value, dict):
        return json.dumps({name: _normal(part) if name in columns else part for name, part in value.items()})
    return json.dumps(_normal(value)) if isinstance(value, str) and columns else sequence


def forms_of(sequence: str | None, columns: Sequence[str], *, instants: bool) -> dict[str, tuple[str, ...]]:
    """Column to the form of its text in a sequence as the ledger keeps it; columns of other types are left out."""
    value = None if sequence is None else json.loads(sequence)
    parts = value if isinstance(value, dict) else dict.fromkeys(columns[:1], value)
    texts = {name: text for name, text in parts.items() if isinstance(text, str)}
    return {name: tuple(forms(pa.array([text]), instants=instants).to_pylist()) for name, text in texts.items()}


def _normal(value: Any) -> Any:
    return normal_form(pa.array([value], pa.string()))[0].as_py() if isinstance(value, str) else value
