"""One key of a table as given by a user, and as stored in rows; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import before_image_name, landed_name
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import DecimalType, SqlType
from airflow_gddl.contract.table_spec import HASHED
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.convert import hashed as masked_text
from spark_jobs.rules.erasure import key_text, whole_bounds


@dataclass(frozen=True, kw_only=True)
class WantedKey:
    """The key in the order of the table's keys: as the source has it, and as the lake has it, masks applied.

    Attributes:
        kinds: key column to its type.
        before_image_prefix: prefix of the columns that hold a row's key before a change; empty: there are none.
    """

    kinds: dict[str, SqlType]
    source: dict[str, str]
    stored: tuple[str, ...]
    before_image_prefix: str = ""

    @classmethod
    def of(cls, spec: TableSpec, table_schema: TableSchema, named: Mapping[str, str], code: str) -> WantedKey:
        """
        Args:
            named: key column, ignoring case, to its value as text; an empty name means the only key column.
            code: of the error; its message shows no value, which may be personal.

        Raises:
            FatalError: columns are missing or no key columns, or a value is none of its column's type.
        """
        given = {(table_schema.spelled(name) or name).lower(): text for name, text in named.items()}
        if set(given) == {""} and len(table_schema.keys) == 1:
            given = {table_schema.keys[0].lower(): given[""]}
        if set(given) != {k.lower() for k in table_schema.keys}:
            names = ", ".join(name or "a value alone" for name in given)
            what = f"the key of {spec.table} is {', '.join(table_schema.keys)}, not {names}"
            raise _invalid(spec, what, code)
        masks = {table_schema.spelled(name): method for name, method in spec.mask.items()}
        kinds = {c.name: c.type for c in table_schema.data if c.name in table_schema.keys}
        source, stored = {}, []
        for key in table_schema.keys:
            text, hashed = given[key.lower()], (method := masks.get(key)) in HASHED
            fitted = text if hashed else key_text(text, kinds[key])
            if fitted is None:
                what = f"the value for {key} is none of its type, {kinds[key]}, that can be named"
                raise FatalError(code, what, where=spec.table, remedy=how_written(key, kinds[key]))
            source[key] = fitted
            stored.append(masked_text(text.encode(), method) if hashed else fitted)
        return cls(kinds={k: kinds[k] for k in table_schema.keys}, source=source, stored=tuple(stored),
                   before_image_prefix=spec.before_image_prefix or "")  # fmt: skip

    def is_in(self, record: str) -> bool:
        """Whether a record of the quarantine, JSON text, is of this key, now or by its before image."""
        row = {landed_name(name).lower(): value for name, value in json.loads(record, parse_float=Decimal).items()}
        prefix = self.before_image_prefix
        own, old = [], []
        for column, kind in self.kinds.items():
            value, image = row.get(column.lower()), row.get(before_image_name(prefix, column).lower())
            own.append(key_text(value, kind))
            old.append(key_text(value if image is None else image, kind))
        return self.stored in {tuple(own), tuple(old)}


def key_of_record(record: str | None, keys: Sequence[str]) -> dict[str, Any] | None:
    """Key columns of a quarantined record, JSON text, and their values as delivered; null where it has none of them."""
    if record is None:
        return None
    row = {landed_name(name).lower(): value for name, value in json.loads(record, parse_float=str).items()}
    return {name: row[name.lower()] for name in keys if name.lower() in row} or None


def how_written(key: str, kind: SqlType) -> str:
    """The values of a type that have a text, and how it is written; see `key_text`."""
    bounds, name = whole_bounds(kind), str(kind)
    if bounds is not None:
        return f"write --key {key}=… with a whole number from {bounds[0]} to {bounds[1]}"
    if isinstance(kind, DecimalType):
        before, after = kind.precision - kind.scale, kind.scale
        return f"write --key {key}=… with a number of at most {before} digits before the point and {after} after it"
    if name in ("float", "double"):
        return (
            f"write --key {key}=… with a whole number below 2^53; a fraction, NaN and infinity can't be named, since "
            "their text is not exact"
        )
    examples = {"boolean": "true or false", "date": "a date such as 2024-02-29",
                "timestamp": "a time such as 2024-02-29T12:00:00Z",
                "timestamp_ntz": "a time without zone, such as 2024-02-29T12:00:00"}  # fmt: skip
    if name in examples:
        return f"write --key {key}=… with {examples[name]}"
    return f"keys of type {name} can't be named"


def _invalid(spec: TableSpec, what: str, code: str) -> FatalError:
    keys = " ".join(f"--key {name}=…" for name in spec.keys)
    return FatalError(code, what, where=spec.table, remedy=f"name the whole key: {keys}")
