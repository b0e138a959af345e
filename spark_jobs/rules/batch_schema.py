"""From the columns that a batch's files bring to the shape of its table. Decides only; engines carry it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import before_image_name, is_before_image, landed_name
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import MaskMethod, SubMicrosecondPolicy, TableSpec
from airflow_gddl.contract.sql_types import (
    VOID,
    ArrayType,
    MapType,
    ScalarType,
    SqlType,
    StructType,
    parse_type,
    parts,
    without_void,
)
from airflow_gddl.contract.table_spec import HASHED, SchemaEvolution, lowered
from spark_jobs.dialects.protocol import (
    Dialect,
    SortOrder,
    applied_columns,
    declared_texts,
    declared_types,
    match,
    resolve_sequence,
    sequence_type,
)
from spark_jobs.plan.applied_settings import ChangeSettings, KnownSchemas, change_settings, columns_of
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.schema_evolution import LATER, ColumnAction, GroupPlan, SchemaPlan, SchemaRules, plan_schema
from spark_jobs.plan.sharding import refreshed
from spark_jobs.plan.source_snapshots import KnownSnapshots, openings_of
from spark_jobs.plan.table_schema import (
    GDDL,
    RESCUED,
    Column,
    IncomingSchema,
    Schema,
    TableSchema,
    select_columns,
    unknown_columns,
    unknown_described,
)
from spark_jobs.plan.types import lossless, widened_number
from spark_jobs.rules.arrays import DeltaSchema, arrow_type, is_text, recast
from spark_jobs.rules.convert import Fitted, Mask, but, either, fit, mask_of, masked, to_micros, within_years
from spark_jobs.rules.errors_table import MISFIT_CODE
from spark_jobs.rules.read import RawGroup
from spark_jobs.rules.texts import finer_text, json_writer, rows_json


def data_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    """`TableSchema.columns` with their types."""
    rescued = (Column(RESCUED, ScalarType("string")),) if table_schema.rescues else ()
    return (*table_schema.data, *rescued)


def gddl_column(table_schema: TableSchema) -> Column:
    return Column(GDDL, parse_type(table_schema.gddl_type))


def change_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    """`TableSchema.change_columns` with their types, and `_gddl`."""
    return (*data_columns(table_schema), *table_schema.before, gddl_column(table_schema))


def change_schema(table_schema: TableSchema) -> pa.Schema:
    """`change_columns` in Arrow."""
    return DeltaSchema(change_columns(table_schema)).arrow


def stored_schema(rows: pa.Table, names: Iterable[str], types: pa.Schema) -> pa.Schema:
    """Stored rows' columns `names` and `_gddl` in the types of `types`; `_gddl.deleted` where the rows have it."""
    kind = types.field(GDDL).type
    if rows.schema.field(GDDL).type.get_field_index("deleted") >= 0:
        kind = pa.struct([*kind, pa.field("deleted", pa.bool_())])
    return pa.schema([*(types.field(name) for name in names), pa.field(GDDL, kind)])


STRING = ScalarType("string")
_NOTHING: tuple[tuple[str, pa.Array, SqlType], ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupDecoding:
    """Everything that turns the raw rows of one group into changes; see `batch_schema.plan_batch`.

    Attributes:
        raw: (name, SQL type) of the file's columns.
        stated: see `Probed.stated`.
        kind: `load` or `change`.
        plan: how delivered columns reach the table; `before` the same for before images.
        masks: file column to method; applied before anything is written, quarantine included.
        schema_id: index into the ledger's schemas.
        withheld: columns of the file that no table may hold, the errors table included.
    """

    raw: tuple[tuple[str, str], ...]
    stated: tuple[tuple[str, str], ...]
    kind: str
    plan: GroupPlan
    before: GroupPlan
    schema_id: int
    dialect: Dialect
    masks: Mapping[str, MaskMethod]
    withheld: frozenset[str]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.raw)

    @cached_property
    def types(self) -> Mapping[str, SqlType]:
        return {n: parse_type(kind) for n, kind in self.raw}

    @property
    def sub_microseconds(self) -> SubMicrosecondPolicy:
        return self.dialect.spec.sub_microseconds

    @cached_property
    def used(self) -> frozenset[str]:
        """Columns of the file that reach a table or order its changes."""
        actions = (*self.plan.actions, *self.before.actions)
        return frozenset({a.source for a in actions if a.source is not None} | {*self.plan.rescued} | self.needed)

    @cached_property
    def needed(self) -> frozenset[str]:
        """Columns of the file that a delete can't do without: key, operation, sequence."""
        spec = self.dialect.spec
        keys = {landed_name(key).lower() for key in spec.keys}
        sources = {a.source for a in self.plan.actions if a.target.name.lower() in keys}
        order = spec.sequence_by or self.dialect.total_order
        technical = {match(self.names, name) for name in (self.dialect.op_column, *order)}
        return frozenset(name for name in sources | technical if name is not None)

    @cached_property
    def exact(self) -> frozenset[str]:
        """Columns of the table, in lower case, whose values identify rows: keys and their images before."""
        prefix = self.dialect.spec.before_image_prefix
        keys = [landed_name(key) for key in self.dialect.spec.keys]
        images = [] if prefix is None else [before_image_name(prefix, key) for key in keys]
        return lowered([*keys, *images])

    @cached_property
    def declared(self) -> Mapping[str, str]:
        return dict(self.stated) | declared_types(dict(self.raw), self.dialect)

    def rescues_text(self, action: ColumnAction) -> bool:
        """Whether texts that are no values of the type that the file's schema states are rescued."""
        column = action.source
        stated = column in dict(self.stated) and column not in declared_types(dict(self.raw), self.dialect)
        return stated and action.misfit == "rescue" and column not in self.masks


@dataclass(frozen=True)
class RowProblem:
    """What is wrong with the rows of a mask. Never the value: it may be masked."""

    where: Mask
    code: str
    column: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlannedColumns:
    """Attributes:
    values: in the order of the target's columns.
    rescued: name, values and type of what goes into the rescued column.
    reduced: times that were cut or rounded to microseconds.
    """

    values: tuple[pa.Array, ...]
    problems: tuple[RowProblem, ...] = ()
    rescued: tuple[tuple[str, pa.Array, SqlType], ...] = ()
    reduced: int = 0


@dataclass(frozen=True)
class DeliveredColumns:
    """The columns of one group."""

    group: RawGroup
    how: GroupDecoding

    def nulls(self, kind: SqlType) -> pa.Array:
        return pa.nulls(self.group.rows, arrow_type(kind))

    def raw(self, column: str) -> Fitted:
        """A file's column as delivered, times in microseconds; those outside the years 1 to 9999 are misfits."""
        found = within_years(self.group.columns[column])
        if column not in self.group.past:
            return found
        whole = to_micros(found.values, self.group.past[column], self.how.sub_microseconds)
        return Fitted(whole.values, either(found.misfit, whole.misfit), whole.reduced)

    def delivered(self, column: str) -> tuple[Fitted, SqlType]:
        """A file's column after declared types and masks: value, misfit, type."""
        found, kind = self.raw(column), self.how.types[column]
        again = self.group.already_masked and column in self.how.masks
        if column in self.how.declared and not again:
            target = parse_type(self.how.declared[column])
            if target == STRING and column in self.group.past:
                found, kind = self._with_all_digits(column, kind), STRING
            found, kind = self.fitted(found.values, kind, target) if kind != target else found, target
        method = self.how.masks.get(column)
        if method is None or self.group.already_masked:
            return found, kind
        values = masked(found.values, kind, method)
        if method == "null":
            return Fitted(values, found.misfit), kind
        return Fitted(self._with_masked_bytes(column, values), found.misfit), STRING

    def _with_all_digits(self, column: str, kind: SqlType) -> Fitted:
        """Times with digits past the microsecond as text, which has room for them."""
        whole = within_years(self.group.columns[column])
        text = self.fitted(whole.values, kind, STRING).values
        return Fitted(finer_text(text, self.group.past[column]), whole.misfit)

    def _with_masked_bytes(self, column: str, values: pa.Array) -> pa.Array:
        """Hashes of text that is not UTF-8 are those of its bytes."""
        invalid = self.group.invalid.get(column)
        if invalid is None or not is_text(invalid.type):
            return values
        return pc.coalesce(values, masked(invalid, STRING, self.how.masks[column]))

    def hashed(self, column: str, at: pa.Array) -> pa.Array:
        """Some values of a column as delivered, hashed."""
        method = self.how.masks[column]
        values = masked(self.raw(column).values.take(at), self.how.types[column], method)
        invalid = self.group.invalid.get(column)
        return values if invalid is None else pc.coalesce(values, masked(invalid.take(at), STRING, method))

    def fitted(self, values: pa.Array, source: SqlType, target: SqlType) -> Fitted:
        return fit(values, source, target, self.how.sub_microseconds)

    def encoding_problems(self, deletes: Mask) -> list[RowProblem]:
        """Rows with text that is not UTF-8 in a column that is needed; of a delete, key, operation and sequence are."""
        problems = []
        for column, values in self.group.invalid.items():
            if column in self.how.used and column not in self.how.masks:
                where = mask_of(values.is_valid())
                where = where if column in self.how.needed else but(where, deletes)
                problems.append(RowProblem(where, "TEXT_NOT_UTF8", column, "the text is not UTF-8"))
        return problems

    def values(self, deletes: Mask) -> PlannedColumns:
        found = self.planned(self.how.plan.actions, deletes)
        rescued = list(found.rescued)
        for column in self.how.plan.rescued:
            values, kind = self.delivered(column)
            rescued.append((column, values.values, kind))
        return replace(found, rescued=tuple(rescued))

    def planned(self, actions: Sequence[ColumnAction], deletes: Mask) -> PlannedColumns:
        """
        Raises:
            FatalError: `KEY_TYPE`: times of a key have digits past the microsecond.
        """
        found = [self._planned(action, deletes) for action in actions]
        for action, part in zip(actions, found, strict=True):
            if part.reduced and action.target.name.lower() in self.how.exact:
                raise self._inexact(action.target.name, part.reduced)
        return PlannedColumns(
            values=tuple(v for part in found for v in part.values),
            problems=tuple(p for part in found for p in part.problems),
            rescued=tuple(r for part in found for r in part.rescued),
            reduced=sum(part.reduced for part in found),
        )

    def _planned(self, action: ColumnAction, deletes: Mask) -> PlannedColumns:
        target, source = action.target.type, action.source
        if source is None or source not in self.how.types or action.source_type is None:
            return PlannedColumns(values=(self.nulls(target),))
        found, kind = self.delivered(source)
        where, texts = but(found.misfit, deletes), _NOTHING
        if where is not None and self.how.rescues_text(action):
            where, texts = None, ((source, _only(self.raw(source).values, found.misfit), STRING),)
        declared = RowProblem(where, MISFIT_CODE, source, "the value doesn't fit its type")
        if action.how != "fit":
            rescued = ((source, found.values, kind),) if action.keep_original else texts
            values = recast(found.values, arrow_type(target))
            return PlannedColumns(
                values=(values,), problems=(declared,), rescued=rescued, reduced=_count(found.reduced)
            )
        converted = self._fit(action, found.values, kind)
        reduced = _count(either(found.reduced, converted.reduced))
        if action.misfit == "rescue":
            rescued = (*texts, (source, _only(found.values, converted.misfit), kind))
            return PlannedColumns(values=(converted.values,), problems=(declared,), rescued=rescued, reduced=reduced)
        reason = f"a value of type {kind} doesn't fit {target}"
        misfit = RowProblem(but(converted.misfit, deletes), MISFIT_CODE, source, reason)
        return PlannedColumns(values=(converted.values,), problems=(declared, misfit), reduced=reduced)

    def _inexact(self, column: str, rows: int) -> FatalError:
        """Two keys within a microsecond would be one row."""
        spec = self.how.dialect.spec
        return FatalError(
            "KEY_TYPE",
            f"{spec.table}: the key column {column} has times with digits past the microsecond, which a timestamp "
            f"can't hold (in {rows} rows here); nothing was written",
            where=self.group.source[0].as_py(),
            remedy=f"declare `options: {{types: {{{column}: string}}}}`, as which it keeps all digits, and "
            f"{refreshed(spec, 'run gddl reload --from-files')} if rows were loaded; or set "
            "`sub_microseconds: quarantine`",
        )

    def _fit(self, action: ColumnAction, value: pa.Array, source: SqlType) -> Fitted:
        if action.convertible:
            return self.fitted(value, source, action.target.type)
        return Fitted(self.nulls(action.target.type), mask_of(value.is_valid()))

    def rescued_json(self, rescued: Sequence[tuple[str, pa.Array, SqlType]]) -> pa.Array:
        if not rescued:
            return self.nulls(STRING)
        path = json_writer(STRING)
        texts = rows_json(rescued, nulls=False)
        files = self.group.source.to_pylist()
        full = [
            None if text == "{}" else f'{text[:-1]},"_file_path":{path(file)}}}'
            for text, file in zip(texts, files, strict=True)
        ]
        return pa.array(full, pa.string())


def _count(where: Mask) -> int:
    return 0 if where is None else int(where.sum())


def _only(values: pa.Array, where: Mask) -> pa.Array:
    if where is None:
        return pa.nulls(len(values), values.type)
    return pc.if_else(pa.array(where), values, pa.scalar(None, values.type))


_BEFORE_IMAGES = SchemaEvolution(new_column="add", type_change="widen", dropped_column="null")


@dataclass(frozen=True, kw_only=True)
class Landed:
    """A group of files with equal columns; `stated`, `prepared`, `unavailable`: see `Probed`."""

    kind: str
    columns: tuple[tuple[str, str], ...]
    label: str
    only_deletes: bool
    stated: tuple[tuple[str, str], ...] = ()
    prepared: bool = False
    unavailable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchSchema:
    """The decision for a batch.

    Attributes:
        groups: in the order given.
        plan, before: changes to make to the tables; `before` concerns the change table alone.
        new_technical: technical columns that the tables lack. They are no change of the source's schema, and so not in
            `plan.additions`.
        schemas: the ledger's schemas, those of this batch appended where new.
        snapshots: as the batch leaves them in the ledger; null: the table knows none. `truncates` of `table_schema` are
            so, too.
    """

    table_schema: TableSchema
    groups: tuple[GroupDecoding, ...]
    plan: SchemaPlan
    before: SchemaPlan
    schemas: tuple[dict[str, str], ...]
    warnings: tuple[RunWarning, ...] = field(default_factory=tuple)
    new_technical: tuple[Column, ...] = ()
    snapshots: KnownSnapshots | None = None


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Columns of the tables now; null when they don't exist.

    Attributes:
        rescued: they have `_rescued_data`.
        live: data columns of the table that these replace, see `SchemaRules`; null: they replace none.
    """

    data: Schema | None
    before: Schema | None
    rescued: bool = False
    live: Schema | None = None


def order_of_table(dialect: Dialect, groups: Sequence[Landed], state: TableState) -> tuple[tuple[str, ...], str, bool]:
    """Sequence columns, type of `_gddl.sequence`, and whether the order is total.

    What the ledger knows stays once changes have come, for comparing sequences of two types would be no order (rule 14
    guards the metadata); the types of numbers grow with the files, as those of columns do. What a full load alone has
    suggested gives way to the first change files.

    Raises:
        FatalError: `SEQUENCE_MISSING`, `SEQUENCE_TYPE`.
    """
    spec = dialect.spec
    changes = [[n for n, _ in g.columns] for g in groups if g.kind == "change"]
    loads = [[n for n, _ in g.columns] for g in groups if g.kind == "load"]
    settled = state.max_sequence is not None or not changes
    if (settled or state.keeps_order) and state.sequence_by and not spec.sequence_by:
        times = {t.lower() for t in dialect.commit_times}
        found: SortOrder | None = SortOrder(state.sequence_by, state.sequence_by[0].lower() not in times)
    else:
        found = resolve_sequence(dialect, changes, loads)
    if found is None:
        return (), state.sequence_type or "string", True
    stored = _stored_types(state.sequence_type, found.columns) if settled or state.keeps_order else ()
    if settled and state.sequence_type is not None and not stored:
        return found.columns, state.sequence_type, found.total
    ordered = [*(g for g in groups if g.kind == "change"), *(g for g in groups if g.kind == "load")]
    types = []
    for at, column in enumerate(found.columns):
        kind = stored[at] if settled and stored else sequence_type(column, _types_of(column, ordered), dialect)
        for other in _types_of(column, [g for g in groups if g.kind == "change"]):
            kind = _wider(kind, sequence_type(column, (other,), dialect)) if other != "void" else kind
        types.append(kind if settled or not stored else _beside(stored[at], kind))
    _require_order(dialect, found.columns, types)
    if len(types) == 1:
        return found.columns, types[0], found.total
    fields = ",".join(f"`{c}`:{t}" for c, t in zip(_stored_names(state, found.columns), types, strict=True))
    return found.columns, f"struct<{fields}>", found.total


def _has_no_order(kind: SqlType) -> bool:
    return isinstance(kind, ArrayType | MapType) or str(kind) == "binary"


def _stored_types(kind: str | None, columns: Sequence[str]) -> tuple[str, ...]:
    """Type of each sequence column, out of that of `_gddl.sequence`; empty where it is unknown or has other columns."""
    if kind is None or len(columns) == 1:
        return () if kind is None else (kind,)
    parsed = parse_type(kind)
    is_whole = isinstance(parsed, StructType) and len(parsed.fields) == len(columns)
    return tuple(str(field.type) for field in parsed.fields) if isinstance(parsed, StructType) and is_whole else ()


def _stored_names(state: TableState, columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the fields of `_gddl.sequence`, which keep the case in which the first changes came."""
    parsed = None if state.sequence_type is None else parse_type(state.sequence_type)
    names = tuple(field.name for field in parsed.fields) if isinstance(parsed, StructType) else ()
    return names if [n.lower() for n in names] == [c.lower() for c in columns] else tuple(columns)


def _wider(kind: str, other: str) -> str:
    """Numbers grow as columns do; other types stay, and what doesn't fit them is refused when it is decoded."""
    return str(widened_number(parse_type(kind), parse_type(other)))


def _beside(stored: str, kind: str) -> str:
    """The type of the first changes of a shard, widened to that of other shards where it holds both."""
    wider = widened_number(parse_type(stored), parse_type(kind))
    return str(wider) if lossless(parse_type(kind), wider) else kind


def _require_order(dialect: Dialect, columns: tuple[str, ...], types: Sequence[str]) -> None:
    """Refuse (`SEQUENCE_TYPE`) bytes, which the ledger keeps as JSON, whose text has another order; arrays and maps."""
    if any(_has_no_order(part) for kind in types for part in parts(parse_type(kind))):
        what = f"the sequence, {', '.join(columns)}, has the type {', '.join(types)}, whose values can't be compared"
        remedy = "name another column in `sequence_by`, or deliver bytes as hexadecimal text"
        raise FatalError("SEQUENCE_TYPE", f"{dialect.spec.table}: {what}", where="sequence_by", remedy=remedy)


def _ordered_text(dialect: Dialect, sequence: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that the service itself adds to order changes have a form of their own, of one width."""
    own = {name.lower() for name in dialect.total_order}
    return tuple(name for name in sequence if name.lower() not in own)


def _types_of(column: str, groups: Sequence[Landed]) -> list[str]:
    found = []
    for group in groups:
        came = match([n for n, _ in group.columns], column)
        if came is not None:
            found.append(dict(group.columns)[came])
    return found


def plan_batch(dialect: Dialect, groups: Sequence[Landed], stored: Stored, state: TableState) -> BatchSchema:
    """Decide the shape of the table after this batch and the way of every group's columns into it.

    Raises:
        FatalError: what `plan_schema` raises, `SEQUENCE_MISSING`, `SEQUENCE_TYPE`.
    """
    spec = dialect.spec
    sequence, kind, total = order_of_table(dialect, groups, state)
    known = _known_schemas(dialect, state)
    technical, ordered_text = _technical(dialect, sequence), _ordered_text(dialect, sequence)
    delivered = [_Delivered.of(dialect, group) for group in groups]
    numbered = list(enumerate(zip(groups, delivered, strict=True)))
    data, before = _incoming(dialect, numbered, technical, stored.data)
    new_technical = _new_technical(stored.data, technical, delivered)
    live = _with_named(stored.live, data, (*spec.keys, *sequence, *technical))
    rules, of_images = _schema_rules(dialect, live)
    plan = plan_schema(_with_columns(stored.data, new_technical), tuple(data), rules)
    images = plan_schema(stored.before, tuple(before), of_images)
    ids, known = known.with_groups([plan.groups[i].schema for i in range(len(groups))])
    table_schema = TableSchema(
        spec=spec,
        keys=tuple(_spelled(plan.target, key) for key in spec.keys),
        data=plan.target.columns, before=images.target.columns,
        before_of_key=_before_of_key(spec, plan.target, images.target),
        sequence=sequence, sequence_type=kind,
        ordered_text=ordered_text,
        one_change=dialect.sends_again and sequence == dialect.total_order[:1], total=total,
        number=dialect.number,
        log_positions=dialect.log_positions and sequence[:1] == dialect.total_order[:1],
        technical=_of_service(dialect, sequence, plan.target.names),
        file_columns=(dialect.carried,) if dialect.carried is not None else (),
        lacking=_lacking(dialect, plan.target, known, sequence),
        earlier=known.earlier,
        file_order=dialect.file_order,
        rescued=stored.rescued,
        openings=openings_of(state.snapshots), swept=max(state.swept, 1), truncates=state.truncates,
    )  # fmt: skip
    applied = applied_columns(dialect, sequence)
    shaped = tuple(
        GroupDecoding(raw=g.columns, stated=g.stated, kind=g.kind, dialect=dialect, plan=plan.groups[i], masks=d.masks,
                      before=images.groups[i], schema_id=ids[i], withheld=d.withheld(applied)) for i, (g, d) in numbered
    )  # fmt: skip
    return BatchSchema(
        table_schema=table_schema, groups=shaped, plan=plan, before=images,
        schemas=known.schemas, snapshots=state.snapshots,
        warnings=(*_of_columns(spec, delivered, plan, first=state.keys is None),
                  *(() if total else _order_not_total(groups, sequence[0]))),
        new_technical=new_technical,
    )  # fmt: skip


def _with_named(live: Schema | None, groups: Sequence[IncomingSchema], names: Sequence[str]) -> Schema | None:
    """The live columns and, as they come, those that the row or the service names: they are no news of the source."""
    if live is None:
        return None
    wanted = {landed_name(name).lower() for name in names}
    come = {landed_name(c.name).lower(): c for group in groups for c in group.columns}
    new = [Column(landed_name(c.name), c.type) for name, c in come.items() if name in wanted and not live.column(name)]
    return Schema((*live.columns, *new))


def _schema_rules(dialect: Dialect, live: Schema | None) -> tuple[SchemaRules, SchemaRules]:
    """For data columns, and for before images: these become text where their columns may.

    Args:
        live: see `SchemaRules`.
    """
    spec, texts = dialect.spec, declared_texts(dialect)
    data = SchemaRules(
        evolution=spec.schema_evolution,
        required=spec.keys,
        partitions=spec.partition_by,
        clusters=spec.cluster_by,
        texts=texts,
        live=live,
        gate=spec.schema,
    )
    images = tuple(f"{spec.before_image_prefix}{name}" for name in texts)
    becomes_text = spec.schema_evolution.type_change == "text"
    evolution = replace(_BEFORE_IMAGES, type_change="text") if becomes_text else _BEFORE_IMAGES
    return data, SchemaRules(evolution=evolution, texts=images)


def _incoming(
    dialect: Dialect, numbered: Sequence[tuple[int, tuple[Landed, _Delivered]]], technical: tuple[str, ...],
    table: Schema | None,
) -> tuple[list[IncomingSchema], list[IncomingSchema]]:  # fmt: skip
    """Data columns and before images of each group."""
    come = (column for _, (_, delivered) in numbered for column in delivered.data)
    known = _technical_columns(dialect, technical, [*(() if table is None else table.columns), *come])
    data = [
        IncomingSchema(i, g.label, _with_absent(d.data, known), g.only_deletes, g.unavailable) for i, (g, d) in numbered
    ]
    return data, [IncomingSchema(i, g.label, d.before, True) for i, (g, d) in numbered]


def _of_columns(
    spec: TableSpec, delivered: Sequence[_Delivered], plan: SchemaPlan, *, first: bool
) -> tuple[RunWarning, ...]:
    """Warnings about columns that the row names and that are not there, and about texts that are converted.

    Raises:
        FatalError: `PROTECTED_COLUMN_MISSING`: a first load would store in clear what a misspelt mask means. Columns
            that are excluded may be left out at the source, too.
    """
    names = [[name for name, _ in each.selectable] for each in delivered]
    given = unknown_columns(names, spec)
    if first and (protected := unknown_columns(names, replace(spec, columns=None, exclude_columns=()))):
        what = f"{spec.table}: {'; '.join(warning.message for warning in protected)}"
        remedy = "correct the name; a column that comes later is named once the table is loaded, before it comes"
        raise FatalError("PROTECTED_COLUMN_MISSING", what, remedy=remedy)
    described = unknown_described((column.name for column in plan.target.columns), spec.column_descriptions)
    return (*given, *described, *_texts_converted(plan))


def _texts_converted(plan: SchemaPlan) -> tuple[RunWarning, ...]:
    """A warning where files deliver text for a column of another type that the row does not declare."""
    fits = [
        action
        for group in plan.groups.values()
        for action in group.actions
        if action.how == "fit" and action.convertible
    ]
    columns = {one.target.name: str(one.target.type) for one in fits if one.source_type == STRING}
    if not columns:
        return ()
    named = ", ".join(f"{name} ({kind})" for name, kind in columns.items())
    message = f"texts are read as the types of the table, so that 007 is 7: {named}"
    return (RunWarning(code="TEXT_CONVERTED", message=message, count=len(columns), sample=tuple(columns)),)


def _order_not_total(groups: Sequence[Landed], column: str) -> tuple[RunWarning, ...]:
    message = f"changes are ordered by {column}, a commit time that several changes can share; "
    message += "name a total order in `sequence_by`"
    changes = any(group.kind == "change" for group in groups)
    return (RunWarning(code="ORDER_NOT_TOTAL", message=message),) if changes else ()


def delivered_type(name: str, kind: str, declared: Mapping[str, str], masks: Mapping[str, MaskMethod]) -> SqlType:
    """The type of a file's column after declarations and masks."""
    hashed = masks.get(name) in HASHED and kind != "void"
    return STRING if hashed else parse_type(declared.get(name, kind))


@dataclass(frozen=True)
class _Delivered:
    """A group's columns by part: data and before images with the types they have after declarations and masks."""

    data: tuple[Column, ...]
    before: tuple[Column, ...]
    masks: Mapping[str, MaskMethod]
    selectable: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, dialect: Dialect, group: Landed) -> _Delivered:
        spec = dialect.spec
        op = match([n for n, _ in group.columns], dialect.op_column)
        selectable = tuple((n, t) for n, t in group.columns if n != op)
        chosen = select_columns([n for n, _ in selectable], spec)
        declared = dict(group.stated) | declared_types(dict(selectable), dialect)
        columns = []
        for name, kind in selectable:
            if name in chosen.kept:
                columns.append(Column(name, delivered_type(name, kind, declared, chosen.masks)))
        prefix = spec.before_image_prefix
        images = tuple(c for c in columns if is_before_image(c.name, prefix))
        data = tuple(c for c in columns if not is_before_image(c.name, prefix))
        return cls(data, images, chosen.masks, selectable)

    def withheld(self, applied: frozenset[str]) -> frozenset[str]:
        """Columns that `exclude_columns` or `columns` leaves out, without those needed to apply rows."""
        kept = {column.name for column in (*self.data, *self.before)}
        return frozenset(name for name, _ in self.selectable if name not in kept and name.lower() not in applied)


def _technical(dialect: Dialect, sequence: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that the CDC service adds; that a full load lacks them is no change of the source's schema."""
    return (*_of_service(dialect, sequence), *columns_of([change_settings(dialect.spec)]))


def _of_service(dialect: Dialect, sequence: tuple[str, ...], names: Sequence[str] = ()) -> tuple[str, ...]:
    """Those that it adds to every change, and more of them among names of columns."""
    return (*sequence, *dialect.total_order, *dialect.commit_times, *filter(dialect.is_technical, names))


def _known_schemas(dialect: Dialect, state: TableState) -> KnownSchemas:
    usual = ChangeSettings(columns_to_update=dialect.carried if dialect.spec.keys else None)
    return KnownSchemas(schemas=state.schemas, now=change_settings(dialect.spec), usual=usual)


def _technical_columns(dialect: Dialect, technical: tuple[str, ...], columns: Iterable[Column]) -> dict[str, str]:
    """Names of technical columns among those of the table and of all files of the batch, by their names without case.

    Of all files, so that a batch that is decided again, after it gave the table a column, is decided as before.
    """
    wanted = {name.lower() for name in technical}
    names = [c.name for c in columns if c.name.lower() in wanted or dialect.is_technical(c.name)]
    return {name.lower(): name for name in reversed(names)}


def _with_absent(columns: tuple[Column, ...], technical: Mapping[str, str]) -> tuple[Column, ...]:
    """Add technical columns that a group lacks, as columns of nulls."""
    have = {c.name.lower() for c in columns}
    return (*columns, *(Column(name, VOID) for key, name in technical.items() if key not in have))


def _new_technical(
    table: Schema | None, technical: tuple[str, ...], groups: Sequence[_Delivered]
) -> tuple[Column, ...]:
    """Technical columns that are new to the table: no policy of the source's schema concerns them."""
    if table is None:
        return ()
    wanted = {t.lower() for t in technical}
    known = {c.name.lower() for c in table.columns}
    found: dict[str, Column] = {}
    for column in (c for g in groups for c in g.data):
        name, kind = column.name.lower(), without_void(column.type)
        if name in wanted and name not in known and kind is not None:
            found.setdefault(name, Column(landed_name(column.name), kind))
    return tuple(found.values())


def _with_columns(table: Schema | None, added: tuple[Column, ...]) -> Schema | None:
    return None if table is None else Schema((*table.columns, *added))


def _spelled(target: Schema, key: str) -> str:
    found = target.column(landed_name(key))
    if found is None:
        raise FatalError("KEY_COLUMN_MISSING", f"key column {key!r} is not among {', '.join(target.names)}")
    if any(isinstance(part, MapType) for part in parts(found.type)):  # equal maps differ by the order of their entries
        what = f"key column {key!r} is a {found.type}, and maps can't be compared"
        raise FatalError("KEY_TYPE", what, where="keys", remedy="declare it as string or as a struct in options.types")
    return found.name


def _before_of_key(spec: TableSpec, target: Schema, images: Schema) -> dict[str, str]:
    if spec.before_image_prefix is None:
        return {}
    pairs = {_spelled(target, key): images.column(landed_name(spec.before_image_prefix + key)) for key in spec.keys}
    return {key: image.name for key, image in pairs.items() if image is not None}


def sources_of(spec: TableSpec, column: str) -> frozenset[str]:
    """The columns, in lower case, that a change must have to carry one: those it is computed from, or itself."""
    text = next((text for name, text in spec.derive.items() if landed_name(name).lower() == column.lower()), None)
    tree = None if text is None else spec.expressions.get(text)
    return frozenset([column.lower()] if tree is None else (landed_name(name).lower() for name in tree.columns))


def _lacking(
    dialect: Dialect, target: Schema, known: KnownSchemas, sequence: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Columns that some file schema lacks, and so its updates keep: by the settings under which they came."""
    always = {c.lower() for c in (*dialect.spec.keys, *_of_service(dialect, sequence))}
    carried = [
        {name.lower() for name in (*schema, *columns_of([settings]))}
        for schema, settings in zip(known.schemas, known.settings[1:], strict=True)
    ]
    found = {}
    for column in target.columns:
        needed = sources_of(dialect.spec, column.name)
        without = tuple(i for i, names in enumerate(carried) if not (needed <= names or LATER in names))
        if without and column.name.lower() not in always:
            found[column.name] = without
    return found
