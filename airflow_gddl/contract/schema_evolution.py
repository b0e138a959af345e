"""The row's field `schema_evolution`: effects of source schema changes; standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NewColumnPolicy = Literal["add", "rescue", "ignore", "fail"]
TypeChangePolicy = Literal["widen", "rescue", "fail"]
DroppedColumnPolicy = Literal["keep", "null", "fail"]


@dataclass(frozen=True, kw_only=True)
class SchemaEvolution:
    """Effects of source schema changes on the tables (design, rule 11)."""

    __pydantic_config__ = {"extra": "forbid", "use_attribute_docstrings": True}  # noqa: RUF012 - not a field

    new_column: NewColumnPolicy = "add"
    """A column the table lacks: `add` it at the end, `rescue` its values, `ignore` it, or `fail`."""
    type_change: TypeChangePolicy = "widen"
    """A type that differs: `widen` along Delta's list (else quarantine), `rescue` what doesn't fit, or `fail`."""
    dropped_column: DroppedColumnPolicy = "keep"
    """A column that no longer comes: `keep` stored values of updated rows, `null` them, or `fail`."""
