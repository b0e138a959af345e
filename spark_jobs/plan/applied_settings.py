"""Settings of a metadata row that stored tables obey, as the ledger remembers them (rule 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from airflow_gddl.contract.extensions import DIALECTS, is_among
from airflow_gddl.contract.features import with_properties
from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.spec import DeleteMode, MaskMethod, TableSpec
from airflow_gddl.contract.sql_types import VOID
from airflow_gddl.contract.table_identity import derived_of, filter_of
from airflow_gddl.contract.table_spec import HASHED, TableMode, TieBreak, lowered


@dataclass(frozen=True, kw_only=True)
class ChangeSettings:
    """Fields of the row with the same names."""

    ignore_null_updates: bool = False
    columns_to_update: str | None = None
    force_update: str | None = None
    tie_break: TieBreak = "delete_wins"


def is_mark(name: str) -> bool:
    """Whether a name in a schema of the ledger is no column."""
    return "=" in name


def columns_of_schemas(schemas: Sequence[Mapping[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Columns of each of the ledger's schemas."""
    return tuple(tuple(name for name in schema if not is_mark(name)) for schema in schemas)


@dataclass(frozen=True, kw_only=True)
class KnownSchemas:
    """The ledger's schemas, with the settings under which their changes came.

    Attributes:
        schemas: column to type, and marks of settings that are not the usual ones.
        now: settings of the row now.
        usual: what changes of a schema without marks came under.
    """

    schemas: tuple[dict[str, str], ...]
    now: ChangeSettings
    usual: ChangeSettings

    @cached_property
    def settings(self) -> tuple[ChangeSettings, ...]:
        """Those of the row now, and of each schema."""
        return (self.now, *map(self._of, self.schemas))

    @cached_property
    def earlier(self) -> dict[ChangeSettings, tuple[int, ...]]:
        """Settings that are not those of the row now, to the schemas of changes that came under them."""
        by_settings: dict[ChangeSettings, tuple[int, ...]] = {}
        for at, settings in enumerate(self.settings[1:]):
            if settings != self.now:
                by_settings[settings] = (*by_settings.get(settings, ()), at)
        return by_settings

    def with_groups(self, groups: Sequence[dict[str, str]]) -> tuple[tuple[int, ...], KnownSchemas]:
        """Index of the schema of each group of files, given the columns that these carry; new ones at the end."""
        schemas, ids = list(self.schemas), []
        for schema in map(self._marked, groups):
            if schema not in schemas:
                schemas.append(schema)
            ids.append(schemas.index(schema))
        return tuple(ids), replace(self, schemas=tuple(schemas))

    def _marked(self, schema: Mapping[str, str]) -> dict[str, str]:
        names = (f.name for f in fields(self.now) if getattr(self.now, f.name) != getattr(self.usual, f.name))
        return dict(schema) | {f"{name}={getattr(self.now, name)}": str(VOID) for name in names}

    def _of(self, schema: Mapping[str, str]) -> ChangeSettings:
        values: dict[str, Any] = {f.name: getattr(self.usual, f.name) for f in fields(self.usual)}
        for mark in filter(is_mark, schema):
            name, _, value = mark.partition("=")
            if name in values:
                values[name] = {"True": True, "False": False, "None": None}.get(value, value)
        return ChangeSettings(**values)


def columns_of(settings: Sequence[ChangeSettings]) -> tuple[str, ...]:
    """Columns that concern changes, not rows of the source."""
    named = (name for each in settings for name in (each.columns_to_update, each.force_update))
    return tuple(dict.fromkeys(name for name in named if name is not None))


@dataclass(frozen=True, kw_only=True)
class AppliedSettings:
    """Fields of the row as of the last batch, or the last rebuild.

    Attributes:
        untracked: columns that the row keeps from opening versions of the history, in lower case.
        where: see `filter_of`.
        derive: see `derived_of`.
        typed_masks: see `typed_masks_of`.
    """

    mode: TableMode = "changes"
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
    where: str | None = None
    derive: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    typed_masks: tuple[str, ...] = ()


_OWN = ("untracked", "where", "derive", "typed_masks")
"""Fields that are not those of the row as they are."""


def settings_of(spec: TableSpec) -> AppliedSettings:
    written = with_properties(spec) if spec.features else spec
    named = {f.name: getattr(written, f.name) for f in fields(AppliedSettings) if f.name not in _OWN}
    return AppliedSettings(
        untracked=untracked_of(spec),
        where=None if spec.where is None else filter_of(spec),
        derive=derived_of(spec) if spec.derive else {},
        typed_masks=typed_masks_of(spec) if spec.mask else (),
        **named,
    )


def is_changed(spec: TableSpec, applied: AppliedSettings | None) -> bool:
    """Whether tables must be reconciled with the row; None: they were never made."""
    return applied != settings_of(spec)


def typed_masks_of(spec: TableSpec) -> tuple[str, ...]:
    """Hashed columns whose texts are read as values of another type: the number 007 has another hash than the text."""
    types = {name.lower(): kind for name, kind in spec.options.get("types", {}).items()}
    hashed = lowered(name for name, method in spec.mask.items() if method in HASHED)
    return tuple(sorted(landed_name(name).lower() for name in hashed if types.get(name, "string") != "string"))


def untracked_of(spec: TableSpec) -> tuple[str, ...]:
    """Columns that the row keeps from opening versions, in lower case.

    Not those of its dialect: they never open any, and whether a row has them depends on who reads it.
    """
    dialect_columns = DIALECTS.get(spec.dialect).technical
    controls = (name for name in columns_of([change_settings(spec)]) if not is_among(name, dialect_columns))
    return tuple(sorted(lowered((*spec.track_history_except, *controls))))


def change_settings(spec: TableSpec) -> ChangeSettings:
    return ChangeSettings(**{f.name: getattr(spec, f.name) for f in fields(ChangeSettings)})


def history_begins(spec: TableSpec, applied: AppliedSettings | None) -> bool:
    """Whether the history has to be derived for all keys: it was off, tracked other columns, or there is none."""
    if not spec.history:
        return False
    return applied is None or not applied.history or applied.untracked != untracked_of(spec)
