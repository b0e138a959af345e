"""Stored changes by the current settings of their row: what a rebuild writes into the change table.

`plan_rewrite` decides; `rewritten` and `refused_values` hold row by row. So does what becomes of rows outside the row
filter (`where`, docs/semantics.md, section 17).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import CAST_FAILED, KEY_NULL, REBUILD_NEEDS_FILES, SEQUENCE_FORM, SEQUENCE_NULL
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import (
    clean_name,
    delivered_name,
    is_before_image,
    landed_name,
    mask_method,
)
from airflow_gddl.contract.spec import MaskMethod, TableSpec
from airflow_gddl.contract.sql_types import SqlType, parse_type, parts_of
from airflow_gddl.contract.table_identity import derived_of, filter_of
from airflow_gddl.contract.table_spec import HASHED, lowered
from spark_jobs.plan.identity import keyed_otherwise, other_prefix, renamed_columns, reselected_columns, retyped_masks
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.schema_evolution import STRING
from spark_jobs.plan.sequence import log_began_of
from spark_jobs.plan.table_schema import GDDL, RESCUED, Column, ColumnSelection, Schema, TableSchema, select_columns
from spark_jobs.plan.types import NOTHING, merge
from spark_jobs.rooms.dialects.protocol import Dialect, sequence_type, texts_of
from spark_jobs.rules.arrays import all_true, arrow_type, flat, is_true, recast, with_values
from spark_jobs.rules.batch_schema import Stored, plan_batch
from spark_jobs.rules.convert import Mask, but, fit, mask_of
from spark_jobs.rules.decode import DecodedGroup, stored_sequence
from spark_jobs.rules.erasure import emptied
from spark_jobs.rules.errors_table import Entry, entries, text_of
from spark_jobs.rules.evaluate import derived_type, outside_filter, recomputed
from spark_jobs.rules.masks import hashed, masked, masked_text
from spark_jobs.rules.order import gddl_fields, moved_rows, old_keys, with_gddl
from spark_jobs.rules.stored_columns import change_columns
from spark_jobs.rules.texts import forms

Problem = tuple[str, str, Mask]
"""Code, column, and the rows whose value would be lost."""
PROBLEM, COLUMN, COUNT = "problem", "column", "count"
"""Columns of `refused_values`."""
_REFUSED = pa.schema([(PROBLEM, pa.string()), (COLUMN, pa.string()), (COUNT, pa.int64())])


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """What a rebuild does to the change table.

    Attributes:
        schema: of the table afterwards.
        stored: columns of the change table now, without `_gddl`.
        masks: stored column to the mask that the row has now and its values lack.
        withheld: columns that were rescued in clear and are masked or excluded now, in lower case, to the mask;
            None: excluded.
        reordered: `_gddl.sequence` is computed again from its columns.
        dropped: id of a batch that was never committed, whose changes go: their files are loaded again. Empty: none.
        foreign: another writer has put rows without `_gddl` into the table; they go.
        filters: the row filter is new.
        derived: computed columns that are new, or computed otherwise than before.
    """

    dialect: Dialect
    schema: TableSchema
    stored: tuple[Column, ...]
    masks: Mapping[str, MaskMethod]
    withheld: Mapping[str, MaskMethod | None]
    reordered: bool
    dropped: str = ""
    foreign: bool = False
    filters: bool = False
    derived: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether the change table differs from what it should be."""
        wanted = [c for c in change_columns(self.schema) if c.name != GDDL]
        stored = {c.name: c.type for c in self.stored}
        same = stored == {c.name: c.type for c in wanted}
        return bool(not same or self.masks or self.withheld or self.reordered or self.dropped or self.foreign
                    or self.filters or self.derived)  # fmt: skip


def plan_rewrite(dialect: Dialect, stored: Stored, state: TableState, dropped: str = "") -> Rewrite:
    """Decide how the stored changes become those of the row as it is now. No policy is asked: all columns stay that the
    row selects.

    Raises:
        FatalError: `REBUILD_NEEDS_FILES`: the lake does not hold what the row asks for. As `plan_batch`.
    """
    spec, data, before = dialect.spec, stored.data or Schema(()), stored.before or Schema(())
    columns = (*data.columns, *before.columns)
    _require_images(spec, columns, state)
    filters, derived = _filters(spec, state), _derived(spec, state)
    masks = _new_masks(spec, columns, state)
    chosen = select_columns([c.name for c in columns], spec, stored=True)
    prefix = spec.before_image_prefix
    texts = texts_of(dialect, state.typed)
    images = [] if prefix is None else [f"{prefix}{name}" for name in texts]
    given = {**dict.fromkeys((*images, *texts), "string"), **dialect.options.types}
    declared = {landed_name(name).lower(): parse_type(kind) for name, kind in given.items()}
    wanted = [
        tuple(_retyped(c, declared, chosen.masks) for c in part.columns if c.name in chosen.kept)
        for part in (data, before)
    ]
    wanted[0] = _with_derived(wanted[0], derived, spec)
    ordered = _order(dialect, columns, state)
    selected = replace(stored, data=Schema(wanted[0]), before=Schema(wanted[1]))
    schema = plan_batch(dialect, (), selected, ordered).table_schema
    return Rewrite(
        dialect=dialect, schema=schema, stored=(*columns, *((Column(RESCUED, STRING),) if stored.rescued else ())),
        masks=masks, withheld=_hidden(spec, state) if stored.rescued else {}, dropped=dropped,
        reordered=_order_of(ordered) != _order_of(state) or bool(state.misplaced), filters=filters,
        derived=derived,
    )  # fmt: skip


def _derived(spec: TableSpec, state: TableState) -> tuple[str, ...]:
    """Computed columns that are new, or computed otherwise than before."""
    if renamed := renamed_columns(spec, state):
        what = f"{spec.table}: {', '.join(renamed)} came into other columns than the metadata row now says"
        raise needs_files(spec, what, "restore rename")
    before = {} if state.applied is None else state.applied.derive
    return tuple(name for name, text in derived_of(spec).items() if before.get(name) != text)


def _with_derived(columns: tuple[Column, ...], derived: Sequence[str], spec: TableSpec) -> tuple[Column, ...]:
    """Columns of the change table, with computed ones in their types."""
    types = {column.name: column.type for column in columns}
    for name in derived:
        kind = derived_type(name, {n: k for n, k in types.items() if n.lower() != name.lower()}, spec)
        if kind is None:
            what = f"{spec.table}: the change table lacks a column from which {name} is computed"
            raise needs_files(spec, what, "restore derive")
        spelled = next((n for n in types if n.lower() == landed_name(name).lower()), landed_name(name))
        types[spelled] = STRING if mask_method(name, spec) in HASHED else kind
    return tuple(Column(name, kind) for name, kind in types.items())


def _filters(spec: TableSpec, state: TableState) -> bool:
    """Whether the row filter is new; one that was there before has kept rows out of the lake."""
    before = None if state.applied is None else state.applied.where
    if before not in (None, filter_of(spec)):
        what = f"{spec.table}: the lake holds only the rows where {before}, and the metadata row has another filter"
        raise needs_files(spec, what, "restore where")
    return before != filter_of(spec)


def plan_archive(dialect: Dialect, stored: Stored, state: TableState, schema: TableSchema) -> Rewrite:
    """How changes that a reload archives are kept in a table of another schema.

    They are masked as the row now says; a value that does not fit is null.
    """
    columns = (*(stored.data or Schema(())).columns, *(stored.before or Schema(())).columns)
    old, new = _masks(dialect.spec, columns, state)
    hidden = _hidden(dialect.spec, state)
    return Rewrite(
        dialect=dialect, schema=schema, reordered=False,
        stored=(*columns, *((Column(RESCUED, STRING),) if stored.rescued else ())),
        masks={name: method for name, method in new.masks.items() if name not in old},
        withheld=hidden,
    )  # fmt: skip


def _hidden(spec: TableSpec, state: TableState) -> dict[str, MaskMethod | None]:
    """Columns whose rescued values change, as files name them, cleaned and in lower case, to their masks."""
    names = {name: delivered_name(name) for name in reselected_columns(spec, state)}
    masks = select_columns(names.values(), spec).masks
    return {clean_name(name).lower(): masks.get(name) for name in names.values()}


def _masks(
    spec: TableSpec, columns: Sequence[Column], state: TableState
) -> tuple[Mapping[str, MaskMethod], ColumnSelection]:
    """Masks that stored values have, and the selection of the row as it is now."""
    was = spec if state.applied is None else replace(
        spec, columns=state.applied.columns, exclude_columns=state.applied.exclude_columns, mask=state.applied.mask
    )  # fmt: skip
    names = [c.name for c in columns]
    return select_columns(names, was, stored=True).masks, select_columns(names, spec, stored=True)


def _new_masks(spec: TableSpec, columns: Sequence[Column], state: TableState) -> dict[str, MaskMethod]:
    """Masks that stored values lack."""
    old, new = _masks(spec, columns, state)
    rekeyed, retyped = keyed_otherwise(spec, state), retyped_masks(spec, state)
    lost = [
        name for name in new.kept if name in old
        and (new.masks.get(name) not in (old[name], "null") or (rekeyed and new.masks.get(name) == "hmac")
             or name.lower() in retyped)
    ]  # fmt: skip
    if lost:
        what = f"{spec.table}: {', '.join(lost)} is stored masked, and the metadata row now asks for other values"
        raise needs_files(spec, what, "restore mask and options.types")
    return {name: method for name, method in new.masks.items() if old.get(name) != method}


def _require_images(spec: TableSpec, columns: Sequence[Column], state: TableState) -> None:
    """Refuse a row without the prefix of stored before images: it would forget that updates have moved rows."""
    was = None if state.applied is None else state.applied.before_image_prefix
    if was is None or not other_prefix(spec, state):
        return
    images = [column.name for column in columns if is_before_image(column.name, was)]
    if images:
        what = f"{spec.table}: {', '.join(images)} are stored before images, and the metadata row has another prefix"
        raise needs_files(spec, what, "restore before_image_prefix")


def needs_files(spec: TableSpec, what: str, otherwise: str) -> FatalError:
    """A rebuild that the lake alone can't give."""
    remedy = f"{otherwise}, or load the files that are there with `gddl reload --from-files --table {spec.table}`"
    return FatalError(REBUILD_NEEDS_FILES, f"{what}; the tables are unchanged", remedy=remedy)


def _retyped(column: Column, declared: Mapping[str, SqlType], masks: Mapping[str, MaskMethod]) -> Column:
    """The column with the type that it has by the row: declared, or text where it is hashed. A wider one stays."""
    if masks.get(column.name) in HASHED:
        return replace(column, type=STRING)
    kind = declared.get(column.name.lower())
    if kind is None or (kind != STRING and merge(column.type, kind, NOTHING) is not None and column.type != STRING):
        return column
    return replace(column, type=kind)


def _order(dialect: Dialect, columns: Sequence[Column], state: TableState) -> TableState:
    """The state with the order that the row asks for now."""
    spec, began = dialect.spec, log_began_of(dialect.spec)
    names = spec.sequence_by or state.sequence_by or ()
    types = {c.name.lower(): str(c.type) for c in columns}
    new_state = replace(state, log_began=began, keys=spec.keys)
    same = lowered(names) == lowered(state.sequence_by or ())
    have = all(landed_name(name).lower() in types for name in names)
    if not names or (same and not have and began == state.log_began):
        return new_state
    if not have:
        what = f"{spec.table}: the change table lacks a column of the sequence [{', '.join(names)}]"
        raise needs_files(spec, what, "restore sequence_by and options.log_began")
    if same and state.sequence_type is not None and not lowered(names) & lowered(dialect.options.types):
        return new_state
    kinds = [sequence_type(c, [types[landed_name(c).lower()]], dialect) for c in names]
    kind = kinds[0] if len(kinds) == 1 else _struct(names, kinds)
    return replace(new_state, sequence_by=tuple(names), sequence_type=kind)


def _order_of(state: TableState) -> tuple[object, ...]:
    """What the stored sequences follow from."""
    return state.sequence_by, state.sequence_type, state.log_began


def _struct(names: Sequence[str], kinds: Sequence[str]) -> str:
    return f"struct<{','.join(f'`{c}`:{t}' for c, t in zip(names, kinds, strict=True))}>"


def rewritten(rows: pa.Table, how: Rewrite) -> pa.Table:
    """Stored changes as the change table should have them."""
    return _rewritten(_kept(rows, how), how)[0]


def refused_values(rows: pa.Table, how: Rewrite) -> pa.Table:
    """Values that a rebuild would lose, by problem and column: `PROBLEM`, `COLUMN`, `COUNT`."""
    rows = _kept(rows, how)
    refused = [{PROBLEM: code, COLUMN: name, COUNT: int(where.sum())}
               for code, name, where in _rewritten(rows, how)[1] if where is not None]  # fmt: skip
    return pa.Table.from_pylist(refused, schema=_REFUSED)


def _kept(rows: pa.Table, how: Rewrite) -> pa.Table:
    if how.foreign:
        rows = rows.filter(pc.is_valid(rows.column(GDDL)))
    if not how.dropped:
        return rows
    return rows.filter(pc.not_equal(gddl_fields(rows)["batch_id"], how.dropped))


def _rewritten(rows: pa.Table, how: Rewrite) -> tuple[pa.Table, list[Problem]]:
    source = how.dialect.reordered(rows) if how.reordered else rows
    stored = {c.name.lower(): c for c in how.stored}
    problems: list[Problem] = []
    columns: dict[str, pa.Array] = {}
    for column in change_columns(how.schema):
        if column.name == GDDL:
            continue
        old = stored.get(column.name.lower())
        if old is None:
            columns[column.name] = pa.nulls(rows.num_rows, arrow_type(column.type))
            continue
        columns[column.name], misfit = _column(flat(source.column(old.name)), old, column, how)
        problems.append((CAST_FAILED, column.name, misfit))
    for name in how.derived:
        target = next(c for c in how.schema.data if c.name.lower() == landed_name(name).lower())
        others = {n: values for n, values in columns.items() if n != target.name}
        columns[target.name] = recomputed(target.name, others, rows.num_rows, how.schema)
    problems += [(KEY_NULL, key, mask_of(columns[key].is_null())) for key in how.schema.keys]
    if RESCUED in columns and how.withheld:
        held = (entries(text) for text in columns[RESCUED].to_pylist())
        columns[RESCUED] = pa.array([text_of(_masked_entries(row, how.withheld)) for row in held], pa.string())
    gddl, unordered = _gddl(source, how)
    result = pa.table({**columns, GDDL: gddl})
    if how.filters:
        outside, _ = outside_filter(result, how.schema, all_true(rows.num_rows))
        result, leaving = as_left(result, how.schema, outside)
        result = result.filter(~(outside & ~leaving))
    return result, [*problems, *unordered]


def _column(values: pa.Array, old: Column, new: Column, how: Rewrite) -> tuple[pa.Array, Mask]:
    method = how.masks.get(old.name)
    if method is not None:
        return masked(values, old.type, method).cast(arrow_type(new.type)), None
    if old.type == new.type:
        return recast(values, arrow_type(new.type)), None
    fitted = fit(values, old.type, new.type, how.dialect.spec.sub_microseconds)
    return fitted.values, fitted.misfit


def _gddl(rows: pa.Table, how: Rewrite) -> tuple[pa.Array, list[Problem]]:
    """The struct in its type, with the sequence computed again if asked; and changes whose order would not be known."""
    target = arrow_type(parse_type(how.schema.event_type))
    if not how.reordered:
        return _in_type(rows, target), []
    loads = pc.equal(gddl_fields(rows)["op"], "R")
    sequence, problems = _sequence(rows, how)
    rows = with_gddl(rows, sequence=pc.if_else(loads, pa.scalar(None, sequence.type), sequence))
    return recast(rows.column(GDDL), target), [
        (code, name, but(where, mask_of(loads))) for code, name, where in problems
    ]


def _in_type(rows: pa.Table, target: pa.DataType) -> pa.Array:
    """The struct with a sequence that may have another type: null where it does not convert."""
    stored, kind = gddl_fields(rows)["sequence"], target.field("sequence").type
    if stored.type != kind:
        try:
            stored = stored.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            stored = pa.nulls(rows.num_rows, kind)
    return recast(with_gddl(rows, sequence=stored).column(GDDL), target)


def _sequence(rows: pa.Table, how: Rewrite) -> tuple[pa.Array, list[Problem]]:
    kind = parse_type(how.schema.sequence_type)
    names = how.schema.sequence
    if not names:
        return pa.nulls(rows.num_rows, arrow_type(kind)), []
    stored = {c.name.lower(): c for c in how.stored}
    parts: list[pa.Array] = []
    problems: list[Problem] = []
    for name, part in zip(names, parts_of(kind), strict=True):
        column = stored[landed_name(name).lower()]
        fitted = stored_sequence(flat(rows.column(column.name)), column.type, name, part, how.schema)
        parts.append(fitted.values)
        problems.append((SEQUENCE_NULL, name, mask_of(fitted.values.is_null())))
        if part == STRING and name in how.schema.ordered_text:
            known = forms(fitted.values)
            problems.append((SEQUENCE_FORM, name, mask_of(pc.equal(known, ""))))
    if len(names) == 1:
        return parts[0], problems
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(kind))), problems


def _masked_entries(held: Mapping[str, Entry], withheld: Mapping[str, MaskMethod | None]) -> dict[str, Entry]:
    """Rescued values without those of excluded columns; masked ones hashed, or left out under `null`.

    Every other entry keeps the text of its value, since numbers would lose digits otherwise."""
    kept = {}
    for column, entry in held.items():
        known = clean_name(entry.name).lower()
        if known not in withheld:
            kept[column] = entry
        elif (method := withheld[known]) in HASHED:
            decoded = json.loads(entry.value, parse_float=Decimal)
            plain = entry.value if decoded is None else masked_text(decoded)
            kept[column] = replace(entry, value=f'"{hashed(plain.encode(), method)}"')
    return kept


def count_of(tables: Sequence[pa.Table]) -> dict[tuple[str, str], int]:
    """`refused_values` of several parts together: (problem, column) to its number of values."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in (row for table in tables for row in table.to_pylist()):
        counts[row[PROBLEM], row[COLUMN]] += row[COUNT]
    return dict(+counts)


def within_filter(group: DecodedGroup, schema: TableSchema) -> DecodedGroup:
    """The group without full-load rows outside the filter; changes outside are deletes, which have their key alone."""
    if group.outside is None:
        return group
    rows, leaving = as_left(group.rows, schema, group.outside)
    dropped = group.outside & ~leaving
    return replace(replace(group, rows=rows).without(dropped), outside=None, filtered=int(dropped.sum()))


def as_left(rows: pa.Table, schema: TableSchema, outside: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """Rows with changes outside the filter as deletes, and which these are.

    An insert is one, too: its key may have a row that is older, or comes later. A row that an update moved is deleted
    under the key that it had before. Without a key nothing is deleted.
    """
    changes = ["I", "U"] if schema.keys else []
    leaving: np.ndarray = outside & is_true(pc.is_in(gddl_fields(rows)["op"], value_set=pa.array(changes, pa.string())))
    if not leaving.any():
        return rows, leaving
    moved = leaving & moved_rows(rows, schema)
    if moved.any():
        olds = old_keys(rows, schema).items()
        rows = with_values(rows, {key: pc.if_else(moved, before, rows.column(key)) for key, before in olds})
    rows = with_gddl(rows, op=pc.if_else(leaving, "D", gddl_fields(rows)["op"]))
    rows = emptied(rows, schema, leaving)
    kept = pa.array(np.arange(rows.num_rows), mask=leaving)
    others = [name for name in schema.columns if name not in schema.keys and not schema.is_technical(name)]
    return with_values(rows, {name: flat(rows.column(name)).take(kept) for name in others}), leaving
