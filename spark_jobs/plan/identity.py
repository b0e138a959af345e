"""Rule 14: what a table is keyed, ordered and partitioned by changes only with a rebuild."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

from airflow_gddl.contract.codes import COLUMNS_CHANGED, MASK_CHANGED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import clean_name, is_before_image, landed_name
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_identity import BUILT_FIELDS, COLUMN_FIELDS, renamed_names, value_of
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.plan.applied_settings import AppliedSettings, columns_of_schemas, settings_of, typed_masks_of
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.sharding import rebuild_command, rebuild_of, reload_of
from spark_jobs.plan.table_schema import select_columns


def require_same_identity(spec: TableSpec, state: TableState) -> None:
    """Refuse a row whose keys, explicit sequence or partitions differ from those the tables were built with.

    Raises:
        FatalError: `MODE_CHANGED`, `KEYS_CHANGED`, `SEQUENCE_CHANGED`, `MASK_CHANGED`, `COLUMNS_CHANGED`,
            `PARTITION_CHANGED`, `BEFORE_IMAGES_CHANGED`.
    """
    has_order = spec.sequence_by in ((), state.sequence_by)  # without one, the tables keep theirs
    if state.applied == settings_of(spec) and state.keys == spec.keys and has_order:
        return
    _require_same_selection(spec, state)
    for field, built in BUILT_FIELDS.items():
        known, before = _built_with(field, state)
        now = value_of(spec, field)
        if known and built.differs(before, now):
            raise _changed(field, spec, before, now)
    if state.applied is not None and other_prefix(spec, state):
        was, now = state.applied.before_image_prefix or "", spec.before_image_prefix or ""
        raise _changed("before_image_prefix", spec, (was,), (now,))
    if moved := renamed_columns(spec, state):
        raise _changed("rename", spec, moved, None)


def _built_with(field: str, state: TableState) -> tuple[bool, Any]:
    """Whether it is known what the tables were built with, and that value."""
    if field == "keys":
        return state.keys is not None, state.keys
    if field == "sequence_by":
        return bool(state.sequence_by), state.sequence_by
    return state.applied is not None, getattr(state.applied, field, None)


def _changed(field: str, spec: TableSpec, before: Any, now: Any) -> FatalError:
    """The error of a field by which the tables were built otherwise.

    Args:
        before: what they were built with; of `rename` the columns that came into others.
    """
    if field == "mode":
        what = f"the tables were built from {before}, the metadata says mode: {now}"
    elif field == "where":
        held = f"the rows where {before}" if before else "all rows"
        what = f"the tables hold {held}, the metadata says {f'where {spec.where}' if spec.where else 'no filter'}"
    elif field == "rename":
        what = f"{', '.join(before)} came into other columns of the tables than `rename` now says"
    else:
        was, says = (
            ", ".join(f"{name}: {text}" for name, text in value.items()) if field == "derive" else ", ".join(value)
            for value in (before, now)
        )
        what = f"the tables were built with {field} [{was}], the metadata says [{says}]"
    built = {**BUILT_FIELDS, **COLUMN_FIELDS}[field]
    repair = rebuild_of(spec) if built.repair(before) == "rebuild" else reload_of(spec)
    remedy = f"restore {field}, or {rebuild_command(spec) if field == 'partition_by' else repair}"
    return FatalError(built.code, f"{spec.table}: {what}", remedy=remedy)


def has_same_mode(spec: TableSpec, state: TableState) -> bool:
    """Whether the tables were built from what the row now says that lands."""
    return state.applied is None or not BUILT_FIELDS["mode"].differs(state.applied.mode, spec.mode)


def other_prefix(spec: TableSpec, state: TableState) -> bool:
    """Whether another `before_image_prefix` changes how stored updates of keys are applied."""
    known, now = state.applied, spec.before_image_prefix
    if known is None or not COLUMN_FIELDS["before_image_prefix"].differs(known.before_image_prefix, now):
        return False
    names = (name for schema in state.schemas for name in schema)
    return known.before_image_prefix is not None or any(is_before_image(name, now) for name in names)


def reselected_columns(spec: TableSpec, state: TableState) -> dict[str, str]:
    """Stored columns whose values the metadata now masks otherwise (`mask`) or no longer lets in (`columns`)."""
    before, retyped = state.applied, retyped_masks(spec, state)
    if before is None or (_selected(spec) == _selected(before) and not retyped):
        return {}
    names = tuple(dict.fromkeys(chain(*columns_of_schemas(state.schemas))))
    earlier = replace(spec, columns=before.columns, exclude_columns=before.exclude_columns, mask=before.mask)
    was, now = (select_columns(names, row, stored=True) for row in (earlier, spec))
    reselected = {name: "columns" for name in was.kept if name not in now.kept}
    if spec.schema_evolution.new_column == "rescue":  # which may hold values of columns that no table has
        known = lowered(names)
        reselected |= {
            n: "columns" for n in spec.exclude_columns if n.lower() not in known and n not in before.exclude_columns
        }
        reselected |= {n: "mask" for n, m in spec.mask.items() if n.lower() not in known and before.mask.get(n) != m}
    rekeyed = keyed_otherwise(spec, state)
    return reselected | {
        n: "mask" for n in was.kept if n in now.kept
        and (was.masks.get(n) != now.masks.get(n) or (rekeyed and now.masks.get(n) == "hmac") or n.lower() in retyped)
    }  # fmt: skip


def _selected(row: TableSpec | AppliedSettings) -> tuple[object, ...]:
    return row.columns, row.exclude_columns, row.mask, row.mask_key_id


def keyed_otherwise(spec: TableSpec, state: TableState) -> bool:
    """Whether values under `hmac` are stored under another key than the job has."""
    stored = "" if state.applied is None else state.applied.mask_key_id
    return bool(stored and spec.mask_key_id) and stored != spec.mask_key_id


def retyped_masks(spec: TableSpec, state: TableState) -> frozenset[str]:
    """Columns in lower case that are hashed as before, and of which the row reads texts otherwise than before."""
    if state.applied is None:
        return frozenset()
    both = lowered(landed_name(name) for name, method in spec.mask.items() if state.applied.mask.get(name) == method)
    return both & frozenset(typed_masks_of(spec)).symmetric_difference(state.applied.typed_masks)


def _require_same_selection(spec: TableSpec, state: TableState) -> None:
    table = spec.table
    old = "remove the old tables" if spec.shards else "old files go with `gddl maintain` after vacuum_retention"
    for column, what in reselected_columns(spec, state).items():
        repair = reload_of(spec) if column.lower() in retyped_masks(spec, state) else rebuild_of(spec)
        remedy = f"restore the metadata row, or {repair}; {old}"
        code, said = MASK_CHANGED, "is stored under another mask, key or type than the job now has"
        if what != "mask":
            code, said = COLUMNS_CHANGED, "is stored, and the metadata now keeps it out of the lake"
        raise FatalError(code, f"{table}: column {column!r} {said}", remedy=remedy)


def renamed_columns(spec: TableSpec, state: TableState) -> tuple[str, ...]:
    """Columns whose values the row now puts into other columns of the tables than before.

    A name for a column that the tables don't have is none: so a column that is renamed at the source keeps its values.
    """
    before = {} if state.applied is None else state.applied.rename
    if before == spec.rename:
        return ()
    stored = {landed_name(name).lower() for name in chain(*columns_of_schemas(state.schemas))}
    moved, former = renamed_names(before, spec.rename), {clean_name(name).lower() for name in before}
    return tuple(sorted(n for n in moved if n in former or landed_name(n).lower() in stored))


def has_same_identity(spec: TableSpec, state: TableState) -> bool:
    """Whether the row still describes the tables as they were built."""
    try:
        require_same_identity(spec, state)
    except FatalError:
        return False
    return True
