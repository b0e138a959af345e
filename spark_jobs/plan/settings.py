"""Settings of a metadata row that stored tables obey, as the ledger remembers them (rule 14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from airflow_gddl.contract.codec import ALWAYS
from airflow_gddl.contract.spec import DeleteMode, MaskMethod, TableSpec

LAYOUT = 3
"""Of the tables that this release writes; those of others are brought up to it by their next batch. Before 3 the
history knew no generations."""


@dataclass(frozen=True, kw_only=True)
class AppliedSettings:
    """Fields of the row as of the last batch, or the last full refresh."""

    layout: int = field(default=LAYOUT, metadata={ALWAYS: True})
    history: bool = False
    delete: DeleteMode = "hard"
    columns: tuple[str, ...] | None = None
    exclude_columns: tuple[str, ...] = ()
    mask: Mapping[str, MaskMethod] = field(default_factory=dict)
    mask_key_id: str = ""
    table_properties: Mapping[str, str] = field(default_factory=dict)
    cluster_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    description: str | None = None
    column_descriptions: Mapping[str, str] = field(default_factory=dict)


def settings_of(spec: TableSpec) -> AppliedSettings:
    return AppliedSettings(**{f.name: getattr(spec, f.name) for f in fields(AppliedSettings) if f.name != "layout"})


def history_begins(spec: TableSpec, applied: AppliedSettings | None) -> bool:
    """Whether the history has to be derived for all keys: it was off, is of an earlier layout, or nothing is known."""
    return spec.history and (applied is None or not applied.history or applied.layout < LAYOUT)
