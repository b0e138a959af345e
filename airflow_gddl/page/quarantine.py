"""Quarantined rows for display: values by column, without masked columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import lowered

_LONGEST = 2000
_TEXTS = ("occurred_at", "code", "reason", "column", "source_file", "batch_id")


@dataclass(frozen=True, kw_only=True)
class HiddenColumns:
    """Columns whose values are not shown, in lower case.

    The job masks values before it writes them. They are also hidden here, since a row that was quarantined before its
    column got a mask keeps the value until the next full refresh.

    Attributes:
        all: no values are shown, since the masked columns are not known.
        kept: the only columns whose values are shown, in lower case; null: all that are not in `names`.
        prefix: of before images, in lower case; empty: there are none.
    """

    names: frozenset[str] = frozenset()
    kept: frozenset[str] | None = None
    prefix: str = ""
    all: bool = False

    @classmethod
    def of(cls, spec: TableSpec | None) -> HiddenColumns:
        """
        Args:
            spec: null: the row is invalid or disabled, so that its masks are not known.
        """
        if spec is None:
            return cls(all=True)
        names = lowered((*spec.mask, *spec.exclude_columns))
        kept = None if spec.columns is None else lowered((*spec.columns, *spec.keys))
        return cls(names=names, kept=kept, prefix=(spec.before_image_prefix or "").lower())

    def hides(self, column: str) -> bool:
        """As the job decides it: an image before a change follows its column."""
        name = column.lower()
        names = {name, name.removeprefix(self.prefix)}
        return self.all or bool(names & self.names) or (self.kept is not None and not names & self.kept)

    @property
    def any(self) -> bool:
        return self.all or bool(self.names) or self.kept is not None


def shown_row(row: Mapping[str, Any], hidden: HiddenColumns) -> dict[str, Any]:
    """A row of the errors table: its texts, and `values`, a list of `name`, `value` and `hidden`.

    `value` is null where the record has null, and where it is hidden. A record that is no JSON object, such as a line
    of a file that can't be split into columns, is one value without a name; it is hidden where any column is.
    """
    shown: dict[str, Any] = {name: None if row[name] is None else str(row[name]) for name in _TEXTS}
    record = row["record"]
    if record is None:
        return {**shown, "values": []}
    try:
        values = json.loads(record, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return {**shown, "values": [_value("", str(record), masked=hidden.any)]}
    return {**shown, "values": [_value(name, value, masked=hidden.hides(name)) for name, value in values.items()]}


def _value(name: str, value: Any, *, masked: bool) -> dict[str, Any]:
    name = _encodable(name)
    if masked or value is None:
        return {"name": name, "value": None, "hidden": masked}
    text = _encodable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    more = len(text) - _LONGEST
    return {"name": name, "value": f"{text[:_LONGEST]} ({more} more characters)" if more > 0 else text, "hidden": False}


def _encodable(text: str) -> str:
    """JSON may contain lone surrogates, which a response can't."""
    return text.encode("utf-8", "backslashreplace").decode()
