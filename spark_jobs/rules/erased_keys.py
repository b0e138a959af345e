"""Keys that were erased for good, known by a keyed hash alone; pure.

The hash is HMAC-SHA256 under a salt that the lake keeps, over a name of the table and the texts of the key's parts,
each with its length before it. The name is the one that the table had at its first erasure: moves keep it. Texts are
those of Spark's cast to string, so that both engines find the same, but that a value has the same text in every type
that its column may be widened to: `5` also as a decimal of two places or as a double, a date also as a time without a
zone. Else a wider type would let erased keys in again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeVar

from airflow_gddl.contract.sql_types import DecimalType, SqlType
from spark_jobs.plan.files import PlannedFile
from spark_jobs.plan.sequence import have_one_type, is_after
from spark_jobs.rules.text_grammar import BITS
from spark_jobs.rules.value_text import WIDE, as_text

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Bound of an erasure: later rows with the key belong to a reused key.

    Attributes:
        until: time of the last request.
        sequence: JSON text of the highest sequence ingested then; null: none.
        fingerprints: of landing files that held the key then.
    """

    until: datetime
    sequence: str | None = None
    fingerprints: frozenset[str] = frozenset()

    def covers(self, commit_ts: datetime | None, sequence: str | None, file: PlannedFile | None) -> bool:
        """Whether a row is of before: by its file, by its commit time, by its sequence, by its file's time.

        Args:
            file: null: not known, as for rows of the quarantine.
        """
        if file is not None and file.fingerprint in self.fingerprints:
            return True
        if commit_ts is not None:
            return (commit_ts if commit_ts.tzinfo else commit_ts.replace(tzinfo=UTC)) <= self.until
        if sequence is not None and self.sequence is not None and _is_up_to(sequence, self.sequence):
            return True
        return file is None or datetime.fromisoformat(file.modified) <= self.until


def _is_up_to(sequence: str, bound: str) -> bool:
    """False for sequences that don't compare, such as those of before `sequence_by` was changed."""
    return have_one_type(sequence, bound) and not is_after(sequence, bound)


def _without_end(_: str) -> Bound:
    return Bound(until=datetime.max.replace(tzinfo=UTC))


_REAL = ("float", "double")
EXACT_REAL = 2**53
"""Whole numbers below this are distinguished as doubles."""
MIDNIGHT = " 00:00:00"
"""What the text of a time without a zone leaves out, so that it is a date's."""


@dataclass(frozen=True, kw_only=True)
class ErasedKeys:
    """The erased keys of one table; false when there are none.

    Attributes:
        table: the name that new hashes are made with.
        former: other names that hashes may have been made with. A name too many is harmless: it fits no hash.
        hashes: hexadecimal.
        columns: the key's columns in the order in which texts come. What is hashed has them by name, since the
            metadata may name them in another order at any time.
        bound: of a hash among these, bound up to which its rows are excluded.
        files: the files of a batch by path.
    """

    table: str
    former: tuple[str, ...] = ()
    salt: bytes = b""
    hashes: frozenset[str] = frozenset()
    columns: tuple[str, ...] = ()
    bound: Callable[[str], Bound] = field(default=_without_end, compare=False)
    files: Mapping[str, PlannedFile] = field(default_factory=dict, compare=False)

    def resolved(self) -> ErasedKeys:
        """A copy with all bounds resolved, for other processes."""
        return replace(self, bound={key_hash: self.bound(key_hash) for key_hash in self.hashes}.__getitem__)

    def __bool__(self) -> bool:
        return bool(self.hashes)

    def hash_of(self, texts: Sequence[str]) -> str:
        """The hash by which the key was erased; else that of a new erasure."""
        return self.held(texts) or self._hash(self.table, texts)

    def _hash(self, table: str, texts: Sequence[str]) -> str:
        return hmac.new(self.salt, message_of(table, self.arranged(texts)).encode(), hashlib.sha256).hexdigest()

    def arranged(self, texts: Sequence[T]) -> list[T]:
        """The parts of a key in the order in which they are hashed."""
        by_name = sorted(range(len(self.columns)), key=lambda at: self.columns[at].lower())
        return [texts[at] for at in by_name] if self.columns else list(texts)

    def held(self, texts: Sequence[str | None]) -> str | None:
        """The hash of this key if it was erased; one with a null part is none."""
        whole = [text for text in texts if text is not None]
        if not self.hashes or len(whole) != len(texts):
            return None
        made = (self._hash(table, whole) for table in (self.table, *self.former))
        return next((found for found in made if found in self.hashes), None)

    def is_kept_out(self, key_hash: str, commit_ts: datetime | None, sequence: str | None, source: str) -> bool:
        """Whether a row of an erased key is within its bound.

        Args:
            source: path of the row's file.
        """
        return self.bound(key_hash).covers(commit_ts, sequence, self.files.get(source))


def message_of(table: str, texts: Sequence[str]) -> str:
    """What is hashed: no two keys have the same."""
    return f"{table}\n" + "".join(f"{len(text)}:{text}" for text in texts)


def key_text(value: Any, kind: SqlType) -> str | None:
    """A part of a key as the text of its column's type.

    Args:
        value: a value of the type, or the text of one.

    Returns:
        None when it doesn't fit the type, or when values of the type have no text that identifies them.
    """
    try:
        return None if value is None else _text(value, kind)
    except (ValueError, ArithmeticError):
        return None


def _text(value: Any, kind: SqlType) -> str | None:
    name = str(kind)
    if isinstance(kind, DecimalType) or name in (*BITS, *_REAL):
        return _number(Decimal(str(value)), kind)
    if name == "string":
        return value if isinstance(value, str) else as_text(value, kind)
    if name == "boolean":
        return str(value).lower() if str(value).lower() in ("true", "false") else None
    if name == "date":
        return str(value if isinstance(value, date) else date.fromisoformat(str(value)))
    if name not in ("timestamp", "timestamp_ntz"):
        return None
    text = as_text(_moment(value), kind)
    return text.removesuffix(MIDNIGHT) if name == "timestamp_ntz" else text


def _number(given: Decimal, kind: SqlType) -> str | None:
    if isinstance(kind, DecimalType):
        fitted = given.quantize(Decimal(1).scaleb(-kind.scale), context=WIDE)
        fits = fitted == given and len(fitted.as_tuple().digits) <= kind.precision
        return _plain(fitted) if fits else None
    if given != int(given):
        return None
    # Other doubles have no text that both engines agree on, and don't equal typed text.
    bounds = whole_bounds(kind) or (1 - EXACT_REAL, EXACT_REAL - 1)
    return str(int(given)) if bounds[0] <= given <= bounds[1] else None


def whole_bounds(kind: SqlType) -> tuple[int, int] | None:
    """Least and greatest value of a type of whole numbers; null: it is none."""
    bits = BITS.get(str(kind))
    return None if bits is None else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if short == "-0" else short


def _moment(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo is not None else found
