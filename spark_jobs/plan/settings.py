"""Settings of a metadata row that stored tables obey, as the ledger remembers them (rule 14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from airflow_gddl.contract.codec import ALWAYS
from airflow_gddl.contract.spec import DeleteMode, MaskMethod, TableSpec
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.plan.change_settings import ChangeSettings, columns_of

LAYOUT = 3
"""Of the tables that this release writes; those of others are brought up to it by their next batch. Before 3 the
history knew no generations."""
MARKED = 4
"""Of a ledger whose schemas have marks (`plan.change_settings`), and which knows `untracked` and `before_image_prefix`;
the tables are as in 3."""


@dataclass(frozen=True, kw_only=True)
class AppliedSettings:
    """Fields of the row as of the last batch, or the last full refresh.

    Attributes:
        untracked: columns that the row keeps from opening versions of the history, in lower case.
    """

    layout: int = field(default=MARKED, metadata={ALWAYS: True})
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
    untracked: tuple[str, ...] = ()
    before_image_prefix: str | None = None


def settings_of(spec: TableSpec) -> AppliedSettings:
    named = [f.name for f in fields(AppliedSettings) if f.name not in ("layout", "untracked")]
    return AppliedSettings(untracked=untracked_of(spec), **{name: getattr(spec, name) for name in named})


def untracked_of(spec: TableSpec) -> tuple[str, ...]:
    """Columns that the row keeps from opening versions, in lower case."""
    return tuple(sorted(lowered((*spec.track_history_except, *columns_of([change_settings(spec)])))))


def change_settings(spec: TableSpec) -> ChangeSettings:
    return ChangeSettings(**{f.name: getattr(spec, f.name) for f in fields(ChangeSettings)})


def history_begins(spec: TableSpec, applied: AppliedSettings | None) -> bool:
    """Whether the history has to be derived for all keys: it was off, is of an earlier layout, tracked other columns,
    or nothing is known."""
    if not spec.history:
        return False
    if applied is None or not applied.history or applied.layout < LAYOUT:
        return True
    return applied.layout >= MARKED and applied.untracked != untracked_of(spec)
