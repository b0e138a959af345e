"""From the columns that a batch's files bring to the shape of its table. Decides only; `delivered_columns` converts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.codes import (
    COLUMN_DROPPED,
    KEY_COLUMN_MISSING,
    KEY_TYPE,
    ORDER_NOT_TOTAL,
    SEQUENCE_TYPE,
    TEXT_CONVERTED,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import (
    VOID,
    ArrayType,
    MapType,
    StructType,
    parse_type,
    parts,
    without_void,
)
from airflow_gddl.contract.table_spec import SchemaEvolution, lowered
from spark_jobs.plan.applied_settings import (
    ChangeSettings,
    KnownSchemas,
    change_settings,
    columns_of,
    columns_of_schemas,
)
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.schema_evolution import LATER, STRING, SchemaPlan, SchemaRules, plan_schema
from spark_jobs.plan.source_snapshots import KnownSnapshots, LogServer
from spark_jobs.plan.table_schema import (
    Column,
    LandedGroup,
    Schema,
    TableSchema,
    found_columns,
    land,
    missing_protected,
    protected_columns,
    unknown_columns,
    unknown_described,
)
from spark_jobs.plan.types import lossless, widened_number
from spark_jobs.rooms.dialects.protocol import (
    Dialect,
    SortOrder,
    applied_columns,
    match,
    resolve_sequence,
    sequence_type,
    texts_of,
)
from spark_jobs.rules.file_groups import FileGroup

_BEFORE_IMAGES = SchemaEvolution(new_column="add", type_change="widen", dropped_column="null")


@dataclass(frozen=True, kw_only=True)
class BatchSchema:
    """The decision for a batch.

    Attributes:
        groups: in the order given.
        plan, before: changes to make to the tables; `before` concerns the change table alone.
        new_technical: technical columns that the tables lack. They are no change of the source's schema, and so not in
            `plan.additions`.
        schemas: the ledger's schemas, those of this batch appended where new.
        snapshots: as the batch leaves them in the ledger; None: the table knows none. `truncates` of `table_schema` are
            so, too.
        servers: of MySQL, of each file of the batch.
        found, typed: see `TableState`, as the batch leaves them.
        missing: see `missing_protected`; empty for a batch without files.
    """

    table_schema: TableSchema
    groups: tuple[FileGroup, ...]
    plan: SchemaPlan
    before: SchemaPlan
    schemas: tuple[dict[str, str], ...]
    warnings: Warnings = field(default_factory=tuple)
    new_technical: tuple[Column, ...] = ()
    snapshots: KnownSnapshots | None = None
    servers: tuple[LogServer, ...] = ()
    found: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Columns of the tables now; null when they don't exist.

    Attributes:
        rescued: they have `_rescued_data`.
        event_fields: the change table has `EVENT_FIELDS`.
        live: data columns of the table that these replace, see `SchemaRules`; None: they replace none.
    """

    data: Schema | None
    before: Schema | None
    rescued: bool = False
    event_fields: bool = False
    live: Schema | None = None


def order_of_table(
    dialect: Dialect, groups: Sequence[FileGroup], state: TableState
) -> tuple[tuple[str, ...], str, bool]:
    """Sequence columns, type of `_gddl.sequence`, and whether the order is total.

    What the ledger knows stays once changes have come, for comparing sequences of two types would be no order (rule 14
    guards the metadata); the types of numbers grow with the files, as those of columns do. What a full load alone has
    suggested gives way to the first change files.

    Raises:
        FatalError: `SEQUENCE_MISSING`, `SEQUENCE_TYPE`.
    """
    spec = dialect.spec
    groups = [group for group in groups if not group.is_blank]
    changes = [[n for n, _ in g.columns] for g in groups if g.kind == "change"]
    loads = [[n for n, _ in g.columns] for g in groups if g.kind == "load"]
    settled = state.max_sequence is not None or not changes
    if (settled or state.keeps_order) and state.sequence_by and not spec.sequence_by:
        times = {t.lower() for t in dialect.commit_times}
        order: SortOrder | None = SortOrder(state.sequence_by, state.sequence_by[0].lower() not in times)
    else:
        order = resolve_sequence(dialect, changes, loads)
    if order is None:
        return (), state.sequence_type or "string", True
    stored = _stored_types(state.sequence_type, order.columns) if settled or state.keeps_order else ()
    if settled and state.sequence_type is not None and not stored:
        return order.columns, state.sequence_type, order.total
    ordered = [*(g for g in groups if g.kind == "change"), *(g for g in groups if g.kind == "load")]
    types = []
    for at, column in enumerate(order.columns):
        kind = stored[at] if settled and stored else sequence_type(column, _types_of(column, ordered), dialect)
        for other in _types_of(column, [g for g in groups if g.kind == "change"]):
            kind = _wider(kind, sequence_type(column, (other,), dialect)) if other != "void" else kind
        types.append(kind if settled or not stored else _beside(stored[at], kind))
    _require_order(dialect, order.columns, types)
    if len(types) == 1:
        return order.columns, types[0], order.total
    fields = ",".join(f"`{c}`:{t}" for c, t in zip(_stored_names(state, order.columns), types, strict=True))
    return order.columns, f"struct<{fields}>", order.total


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
    every = [part for kind in types for part in parts(parse_type(kind))]
    if any(isinstance(part, ArrayType | MapType) or str(part) == "binary" for part in every):
        what = f"the sequence, {', '.join(columns)}, has the type {', '.join(types)}, whose values can't be compared"
        remedy = "name another column in `sequence_by`, or deliver bytes as hexadecimal text"
        raise FatalError(SEQUENCE_TYPE, f"{dialect.spec.table}: {what}", where="sequence_by", remedy=remedy)


def _ordered_text(dialect: Dialect, sequence: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that the service itself adds to order changes have a form of their own, of one width."""
    service_columns = {name.lower() for name in dialect.total_order}
    return tuple(name for name in sequence if name.lower() not in service_columns)


def _types_of(column: str, groups: Sequence[FileGroup]) -> list[str]:
    kinds = []
    for group in groups:
        came = match([n for n, _ in group.columns], column)
        if came is not None:
            kinds.append(dict(group.columns)[came])
    return kinds


def plan_batch(dialect: Dialect, groups: Sequence[FileGroup], stored: Stored, state: TableState) -> BatchSchema:
    """Decide the shape of the table after this batch and the way of every group's columns into it.

    Raises:
        FatalError: what `plan_schema` raises, `SEQUENCE_MISSING`, `SEQUENCE_TYPE`.
    """
    spec = dialect.spec
    sequence, kind, total = order_of_table(dialect, groups, state)
    known = known_schemas(dialect, state)
    # That a full load lacks these columns is no change of the source's schema.
    technical = (*_of_service(dialect, sequence), *columns_of([change_settings(dialect.spec)]))
    ordered_text = _ordered_text(dialect, sequence)
    data, before = _landed(dialect, groups, technical, stored.data)
    new_technical = _new_technical(stored.data, technical, groups)
    live = _with_named(stored.live, data, (*spec.keys, *sequence, *technical))
    rules, rules_of_images = _schema_rules(dialect, live, texts_of(dialect, state.typed))
    plan = plan_schema(_with_columns(stored.data, new_technical), data, rules)
    images = plan_schema(stored.before, before, rules_of_images)
    ids, known = known.with_groups([group.schema for group in plan.groups])
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
        rescued=stored.rescued, event_fields=stored.event_fields,
        openings=state.snapshots.openings if state.snapshots else (), swept=max(state.swept, 1),
        truncates=state.truncates, adopted=state.adopted,
    )  # fmt: skip
    applied = applied_columns(dialect, sequence)
    found, missing = _protected(dialect, groups, columns_of_schemas(known.schemas), state.found)
    return BatchSchema(
        table_schema=table_schema, groups=_planned(groups, (plan, images), ids, applied), plan=plan, before=images,
        schemas=known.schemas, snapshots=state.snapshots,
        found=found, missing=missing, typed=_typed(dialect, groups, plan.target, state),
        warnings=(*_of_columns(spec, groups, plan),
                  *_gone(dialect, groups, plan, ids, len(state.schemas), sequence),
                  *(() if total else _order_not_total(groups, sequence[0]))),
        new_technical=new_technical,
    )  # fmt: skip


def _typed(dialect: Dialect, groups: Sequence[FileGroup], target: Schema, state: TableState) -> tuple[str, ...]:
    """See `TableState.typed`."""
    named = lowered(dialect.options.types)
    texts = [name for group in groups for name, kind in group.columns if kind == "string" and name in group.declared]
    read = [name for name in texts if name.lower() in named]
    columns = {name: target.column(landed_name(name)) for name in (*state.typed, *read)}
    return tuple(name for name, column in columns.items() if column is not None and column.type != STRING)


def _with_named(live: Schema | None, groups: Sequence[LandedGroup], names: Sequence[str]) -> Schema | None:
    """The live columns and, as they come, those that the row or the service names: they are no news of the source."""
    if live is None:
        return None
    wanted = {landed_name(name).lower() for name in names}
    come = {c.name.lower(): Column(c.name, c.type) for group in groups for c in group.columns}
    new = [column for name, column in come.items() if name in wanted and not live.column(name)]
    return Schema((*live.columns, *new))


def _schema_rules(dialect: Dialect, live: Schema | None, texts: tuple[str, ...]) -> tuple[SchemaRules, SchemaRules]:
    """For data columns, and for before images: these become text where their columns may.

    Args:
        live, texts: see `SchemaRules`.
    """
    spec = dialect.spec
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


def _landed(
    dialect: Dialect, groups: Sequence[FileGroup], technical: tuple[str, ...], table: Schema | None
) -> tuple[tuple[LandedGroup, ...], tuple[LandedGroup, ...]]:
    """Data columns and before images of each group."""
    come = (column for group in groups for column in group.data)
    known = _technical_columns(dialect, technical, [*(() if table is None else table.columns), *come])
    data = tuple(
        land(g.label, _with_absent(g.data, known), only_deletes=g.only_deletes, unavailable=g.unavailable)
        for g in groups
    )
    return data, tuple(land(g.label, g.images, only_deletes=True) for g in groups)


def _planned(
    groups: Sequence[FileGroup], plans: tuple[SchemaPlan, SchemaPlan], ids: Sequence[int], applied: frozenset[str]
) -> tuple[FileGroup, ...]:
    """The groups with the way of their columns.

    Args:
        plans: of the data, and of the before images.
        ids: of the groups' schemas.
    """
    data, images = plans
    left_out = (set(group.selectable).difference(group.selection.kept) for group in groups)
    withheld = (frozenset(name for name in names if name.lower() not in applied) for names in left_out)
    return tuple(
        replace(group, plan=of_data, before=of_images, schema_id=schema_id, withheld=names)
        for group, of_data, of_images, schema_id, names in zip(
            groups, data.groups, images.groups, ids, withheld, strict=True
        )
    )


def _of_columns(spec: TableSpec, groups: Sequence[FileGroup], plan: SchemaPlan) -> Warnings:
    """Warnings about columns that the row names and that are not there, and about texts that are converted."""
    given = unknown_columns([group.selectable for group in groups], spec)
    described = unknown_described((column.name for column in plan.target.columns), spec.column_descriptions)
    return (*given, *described, *_texts_converted(plan))


def _gone(
    dialect: Dialect,
    groups: Sequence[FileGroup],
    plan: SchemaPlan,
    ids: Sequence[int],
    known: int,
    sequence: Sequence[str],
) -> Warnings:
    """A warning where the newest change files lack columns of the table, said once: while their schema is a new one.

    Documents lack fields as they like.

    Args:
        ids: schema of each group.
        known: number of schemas before the batch.
        sequence: columns that order changes.
    """
    spec = dialect.spec
    telling = [at for at, one in enumerate(groups) if one.kind == "change" and not (one.only_deletes or one.is_blank)]
    if not telling or ids[telling[-1]] < known or (spec.dialect == "debezium" and _DOCUMENT_KEY in spec.keys):
        return ()
    delivered = lowered(landed_name(name) for name in groups[telling[-1]].names)
    others = lowered((*spec.keys, *spec.derive, *_of_service(dialect, tuple(sequence), plan.target.names)))
    own = [name for name in plan.target.names if name.lower() not in others]
    gone = [name for name in own if name.lower() not in delivered]
    if not gone or len(gone) == len(own):  # a file of deletes may have the key alone
        return ()
    kept = "become null" if spec.schema_evolution.dropped_column == "null" else "stay as they are"
    message = f"change files no longer have columns of the table, whose values {kept}: {', '.join(gone)}"
    return (RunWarning(code=COLUMN_DROPPED, message=message, count=len(gone), sample=tuple(gone)[:5]),)


_DOCUMENT_KEY = "_id"
"""Key of MongoDB's documents."""


def _texts_converted(plan: SchemaPlan) -> Warnings:
    """A warning where files deliver text for a column of another type that the row does not declare."""
    fits = [action for group in plan.groups for action in group.actions if action.how == "fit" and action.convertible]
    columns = {one.target.name: str(one.target.type) for one in fits if one.source_type == STRING}
    if not columns:
        return ()
    named = ", ".join(f"{name} ({kind})" for name, kind in columns.items())
    message = f"texts are read as the types of the table, so that 007 is 7: {named}"
    return (RunWarning(code=TEXT_CONVERTED, message=message, count=len(columns), sample=tuple(columns)),)


def _order_not_total(groups: Sequence[FileGroup], column: str) -> Warnings:
    message = f"changes are ordered by {column}, a commit time that several changes can share; "
    message += "name a total order in `sequence_by`"
    changes = any(group.kind == "change" for group in groups)
    return (RunWarning(code=ORDER_NOT_TOTAL, message=message),) if changes else ()


def _protected(
    dialect: Dialect, groups: Sequence[FileGroup], stored: Sequence[Sequence[str]], known: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """`BatchSchema.found` and `missing`.

    Args:
        stored: columns of the ledger's schemas.
        known: `TableState.found`.
    """
    found = found_columns((group.selectable for group in groups), dialect.spec, stored, known)
    return found, missing_of(dialect, found, stored) if groups else {}


def missing_of(
    dialect: Dialect, found: Iterable[str], stored: Iterable[Iterable[str]] = ()
) -> dict[str, tuple[str, ...]]:
    """See `missing_protected`. What the service adds is never missing: a full load need not have it."""
    listed = [name for names in protected_columns(dialect.spec).values() for name in names]
    services = lowered(_of_service(dialect, (), listed))
    return missing_protected(dialect.spec, (*found, *services), stored)


def _of_service(dialect: Dialect, sequence: tuple[str, ...], names: Sequence[str] = ()) -> tuple[str, ...]:
    """Those that it adds to every change, and more of them among names of columns."""
    return (*sequence, *dialect.total_order, *dialect.commit_times, *filter(dialect.is_technical, names))


def known_schemas(dialect: Dialect, state: TableState) -> KnownSchemas:
    """Those of the ledger, by the settings of the row now."""
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


def _new_technical(table: Schema | None, technical: tuple[str, ...], groups: Sequence[FileGroup]) -> tuple[Column, ...]:
    """Technical columns that are new to the table: no policy of the source's schema concerns them."""
    if table is None:
        return ()
    wanted = {t.lower() for t in technical}
    known = {c.name.lower() for c in table.columns}
    new_columns: dict[str, Column] = {}
    for column in (c for g in groups for c in g.data):
        name, kind = column.name.lower(), without_void(column.type)
        if name in wanted and name not in known and kind is not None:
            new_columns.setdefault(name, Column(landed_name(column.name), kind))
    return tuple(new_columns.values())


def _with_columns(table: Schema | None, added: tuple[Column, ...]) -> Schema | None:
    return None if table is None else Schema((*table.columns, *added))


def _spelled(target: Schema, key: str) -> str:
    column = target.column(landed_name(key))
    if column is None:
        raise FatalError(KEY_COLUMN_MISSING, f"key column {key!r} is not among {', '.join(target.names)}")
    if any(isinstance(part, MapType) for part in parts(column.type)):  # equal maps differ by the order of their entries
        what = f"key column {key!r} is a {column.type}, and maps can't be compared"
        raise FatalError(KEY_TYPE, what, where="keys", remedy="declare it as string or as a struct in options.types")
    return column.name


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
    lacking = {}
    for column in target.columns:
        needed = sources_of(dialect.spec, column.name)
        without = tuple(i for i, names in enumerate(carried) if not (needed <= names or LATER in names))
        if without and column.name.lower() not in always:
            lacking[column.name] = without
    return lacking
