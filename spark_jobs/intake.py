"""From a plan's files to decoded changes: probe, group, plan the schema, read, decode."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.dms import DmsOptions
from airflow_gddl.contract.layout import join
from spark_jobs.batch_schema import BatchSchema, GroupSchema, plan_batch
from spark_jobs.desk import Desk
from spark_jobs.dialects import dms
from spark_jobs.dialects.probe import Probed, Unreadable, probe_all
from spark_jobs.engines.shape import GDDL
from spark_jobs.engines.spark import quarantine
from spark_jobs.engines.spark.decode import ERROR, KIND, GroupDecoding, Stamp, decode
from spark_jobs.engines.spark.measure import Figures, measure
from spark_jobs.engines.spark.order import name
from spark_jobs.engines.spark.read import RawGroup, groups, read_group, union
from spark_jobs.engines.spark.tables import sql_text
from spark_jobs.plan.batch import BatchPlan, TableState

_KEEP_BYTES = 256 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Landed:
    """Files that look alike, as `batch_schema` reads them."""

    kind: str
    columns: tuple[tuple[str, str], ...]
    label: str
    only_deletes: bool


@dataclass(frozen=True, kw_only=True)
class Intake:
    """A batch's rows, decoded.

    Attributes:
        groups: decoded rows and record DDL of each group, for the quarantine.
        decoded: all rows.
        unreadable: files that go to the quarantine whole.
        schema_ids: of the groups, in their order; `change_schemas` of those with changes.
        schema_of: ledger path to schema id.
        rows_by_footer: rows that the files' footers promise; null where a file has no footer.
    """

    schema: BatchSchema
    groups: tuple[tuple[DataFrame, str], ...]
    decoded: DataFrame
    figures: Figures
    schema_ids: tuple[int, ...]
    change_schemas: frozenset[int]
    unreadable: tuple[Unreadable, ...] = ()
    schema_of: Mapping[str, int] = field(default_factory=dict)
    rows_by_footer: int | None = None


def take_in(desk: Desk, plan: BatchPlan, state: TableState) -> tuple[Intake | None, tuple[Unreadable, ...]]:
    """Decode a plan's files; with them, those that can't be read. None when no file can."""
    if plan.source == "quarantine":
        return _take_in_again(desk, plan, state), ()
    readable, unreadable = probe_all(desk.storage, plan.files, desk.options)
    if not readable:
        return None, unreadable
    try:
        return _decode_all(desk, plan, state, readable, unreadable), unreadable
    except PySparkException:
        damaged = _damaged(desk, plan, readable)
        if not damaged:
            raise
        bad = {u.file.path for u in damaged}
        good = tuple(f for f in readable if f.file.path not in bad)
        unreadable = (*unreadable, *damaged)
        return (_decode_all(desk, plan, state, good, unreadable) if good else None), unreadable


def _decode_all(
    desk: Desk, plan: BatchPlan, state: TableState, files: Sequence[Probed], unreadable: tuple[Unreadable, ...]
) -> Intake:
    places = _places(desk, plan, files)
    raws = [read_group(desk.tables.spark, group, places, desk.options) for group in groups(files)]
    counted = [f.rows for f in files]
    intake = decode_groups(desk, plan, state, [(raw, _landed(desk, raw)) for raw in raws])
    return replace(
        intake,
        unreadable=unreadable,
        schema_of={f.file.path: id_ for raw, id_ in zip(raws, intake.schema_ids, strict=True) for f in raw.files},
        rows_by_footer=None if None in counted else sum(c for c in counted if c is not None),
    )


def decode_groups(desk: Desk, plan: BatchPlan, state: TableState, raws: Sequence[tuple[RawGroup, Landed]]) -> Intake:
    """Plan the schema for groups of raw rows and decode them."""
    schema = plan_batch(desk.spec, desk.options, [landed for _, landed in raws], desk.stored_columns(), state)
    stamp = Stamp(plan.batch_id, plan.planned_at)
    decoded = []
    for (raw, landed), group in zip(raws, schema.groups, strict=True):
        how = _decoding(raw, landed, group, desk.options)
        decoded.append((decode(raw.rows, how, schema.shape, stamp), record_ddl(how)))
    rows = union(frame for frame, _ in decoded)
    if sum(f.size for f in plan.files) <= _KEEP_BYTES:
        rows = desk.tables.keep(rows)
    kinds = zip(raws, schema.groups, strict=True)
    return Intake(
        schema=schema,
        groups=tuple(decoded),
        decoded=rows,
        figures=measure(rows, schema.shape),
        schema_ids=tuple(g.schema_id for g in schema.groups),
        change_schemas=frozenset(group.schema_id for (_, landed), group in kinds if landed.kind == "change"),
    )


def _decoding(raw: RawGroup, landed: Landed, group: GroupSchema, options: DmsOptions) -> GroupDecoding:
    return GroupDecoding(
        raw=landed.columns,
        kind=landed.kind,
        plan=group.plan,
        before=group.before,
        schema_id=group.schema_id,
        options=options,
        masks=group.masks,
        nanos=raw.nanos,
        already_masked=raw.already_masked,
    )


def record_ddl(how: GroupDecoding) -> str:
    """The DDL to read a record's JSON back with: hashed columns are text; a comment tells the type of nanoseconds."""
    fields = []
    for column, kind in how.raw:
        hashed = how.masks.get(column) == "hash"
        text = "string" if hashed or kind == "void" else kind
        if column in how.nanos and not hashed:
            text = f"bigint COMMENT '{quarantine.NANOS}{kind}'"
        fields.append("`{}` {}".format(column.replace("`", "``"), text))
    return ", ".join(fields)


def _landed(desk: Desk, raw: RawGroup) -> Landed:
    probed = raw.files[0]
    return Landed(
        kind=probed.file.kind,
        columns=probed.columns,
        label=probed.file.path,
        only_deletes=probed.file.kind == "change" and _only_deletes(desk, raw),
    )


def _only_deletes(desk: Desk, raw: RawGroup) -> bool:
    """Whether a group has nothing but deletes; asked only where that decides about a missing column."""
    if desk.spec.schema_evolution.dropped_column == "keep":
        return False
    op = dms.match([n for n, _ in raw.files[0].columns], desk.options.op_column)
    if op is None:
        return False
    others = raw.rows.where(F.upper(F.trim(name(op).cast("string"))) != "D")
    return others.isEmpty()


def _places(desk: Desk, plan: BatchPlan, files: Sequence[Probed]) -> dict[str, tuple[int, str]]:
    """Ordinal in the batch and path to read from; parquet inside gzip is unwrapped beside the ledger first."""
    ordinals = {file.path: i for i, file in enumerate(plan.files)}
    places = {}
    for found in files:
        ordinal, path = ordinals[found.file.path], found.file.path
        if found.wrapped:
            path = join(desk.layout.state, "unwrapped", f"{plan.batch_id}-{ordinal}.parquet")
            desk.storage.write(path, gzip.decompress(desk.storage.read(found.file.path)))
        places[found.file.path] = (ordinal, path)
    return places


def _damaged(desk: Desk, plan: BatchPlan, files: Sequence[Probed]) -> tuple[Unreadable, ...]:
    """Read every file alone and whole, to find those whose inside is damaged though the footer is not."""
    bad = []
    places = _places(desk, plan, files)
    for found in files:
        rows = read_group(desk.tables.spark, [found], places, desk.options).rows
        columns = [name(n) for n, kind in found.columns if kind != "void" and "map<" not in kind]
        try:
            rows.select(F.xxhash64(*columns).alias("h")).agg(F.max("h")).collect()
        except PySparkException as error:
            reason = str(error).strip().splitlines()[0][:500]
            bad.append(Unreadable(found.file, "FILE_UNREADABLE", reason))
    return tuple(bad)


def take_up(desk: Desk, plan: BatchPlan, state: TableState) -> Intake:
    """The batch as its rows in the change table tell it, for its files no longer do."""
    state = replace(state, schemas=plan.schemas or state.schemas)
    schema = plan_batch(desk.spec, desk.options, (), desk.stored_columns(), state)
    op = F.col(GDDL)["op"]
    rows = desk.site(plan, schema.shape).changes()
    rows = rows.withColumns({ERROR: F.lit(None).cast("string"), KIND: F.when(op == "R", "load").otherwise("change")})
    gddl = F.col(GDDL)
    found = (
        rows.select(gddl["source_file"].alias("f"), gddl["schema"].alias("s"), (op != "R").alias("c"))
        .distinct()
        .collect()
    )
    return Intake(
        schema=schema,
        groups=(),
        decoded=rows,
        figures=measure(rows, schema.shape),
        schema_ids=(),
        change_schemas=frozenset(r["s"] for r in found if r["c"]),
        schema_of={r["f"]: r["s"] for r in found},
    )


def _take_in_again(desk: Desk, plan: BatchPlan, state: TableState) -> Intake | None:
    """Decode the unresolved rows of the quarantine once more; None when there are none."""
    raws = []
    for again in quarantine.groups_to_replay(desk.tables, desk.layout.errors, plan.planned_at):
        nanos = {c: k for c, k in again.nanos.items() if k}
        columns = tuple((f.name, nanos.get(f.name, sql_text(f.dataType))) for f in again.fields)
        landed = Landed(kind=again.kind, columns=columns, label=f"quarantine of {desk.spec.table}", only_deletes=False)
        raws.append((RawGroup(rows=again.rows, nanos=tuple(nanos), already_masked=True), landed))
    return decode_groups(desk, plan, state, raws) if raws else None
