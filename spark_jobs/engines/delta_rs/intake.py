"""From a plan's files to decoded changes: probe, read, group, plan the schema, decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.batch_schema import plan_batch
from spark_jobs.desk import Desk
from spark_jobs.dialects.probe import probe_all
from spark_jobs.dialects.probed import Probed, Unreadable, begin_a_table, groups
from spark_jobs.dialects.roles import match
from spark_jobs.engines.delta_rs import quarantine
from spark_jobs.engines.delta_rs.arrays import by_name
from spark_jobs.engines.delta_rs.arrow_schema import arrow_type
from spark_jobs.engines.delta_rs.decode import DecodedGroup, decode
from spark_jobs.engines.delta_rs.delivery import GroupDecoding
from spark_jobs.engines.delta_rs.erasing import without_erased
from spark_jobs.engines.delta_rs.measure import measure
from spark_jobs.engines.delta_rs.read import FileRows, RawGroup, grouped, read_file
from spark_jobs.engines.delta_rs.tables import DataFile, Tables
from spark_jobs.engines.errors_table import record_ddl
from spark_jobs.engines.figures import NOTHING
from spark_jobs.engines.shape import GDDL, Shape
from spark_jobs.intake import Intake, Landed
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.types import parse_type


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A batch's rows, with the record DDL of each group for the quarantine."""

    intake: Intake
    groups: tuple[tuple[DecodedGroup, str], ...]
    good: pa.Table


@dataclass(frozen=True, kw_only=True)
class Intaking:
    """The way in of one batch."""

    tables: Tables
    desk: Desk
    plan: BatchPlan
    state: TableState

    def take_in(self) -> tuple[Decoded | None, tuple[Unreadable, ...]]:
        """See `Engine.take_in`."""
        if self.plan.source == "quarantine":
            return self._take_in_again(), ()
        probed, unreadable = probe_all(self.desk.storage, self.plan.files, self.desk.dialect)
        read = {p.file.path: read_file(self.desk.storage, p) for p in probed}
        bad = tuple(r for r in read.values() if isinstance(r, Unreadable))
        found = {path: r for path, r in read.items() if isinstance(r, FileRows)}
        unreadable = (*unreadable, *bad)
        files = [p for p in probed if p.file.path in found]
        if self.state.keys is None and not begin_a_table(files):
            return None, unreadable
        return (self._decode_all(files, found, unreadable) if files else None), unreadable

    def _decode_all(
        self, files: Sequence[Probed], found: Mapping[str, FileRows], unreadable: tuple[Unreadable, ...]
    ) -> Decoded:
        ordinals = {file.path: i for i, file in enumerate(self.plan.files)}
        raws = [grouped(group, found, ordinals) for group in groups(files)]
        decoded = self._decode_groups([(raw, self._landed(raw)) for raw in raws])
        ids, passed_over = decoded.intake.schema_ids, decoded.intake.erased
        counted = [f.rows for f in files]
        intake = replace(
            decoded.intake,
            unreadable=unreadable,
            schema_of={f.file.path: id_ for raw, id_ in zip(raws, ids, strict=True) for f in raw.files},
            rows_by_footer=None if None in counted else sum(c for c in counted if c is not None) - passed_over,
        )
        return replace(decoded, intake=intake)

    def _decode_groups(self, raws: Sequence[tuple[RawGroup, Landed]]) -> Decoded:
        """Plan the schema for groups of raw rows and decode them."""
        desk, stored = self.desk, self.desk.stored_columns()
        schema = plan_batch(desk.dialect, [landed for _, landed in raws], stored, self.state)
        decoded, erased, passed_over = [], desk.erasures.keys(), 0
        for (raw, landed), group in zip(raws, schema.groups, strict=True):
            how = GroupDecoding(
                raw=landed.columns, kind=landed.kind, plan=group.plan, before=group.before,
                schema_id=group.schema_id, dialect=desk.dialect, masks=group.masks,
            )  # fmt: skip
            ddl = record_ddl(how.raw, how.masks, raw.nanos)
            rows, gone = without_erased(decode(raw, how, schema.shape, self.plan), schema.shape, erased)
            decoded.append((rows, ddl))
            passed_over += gone
        kinds = zip(raws, schema.groups, strict=True)
        intake = Intake(
            schema=schema,
            figures=measure(((d.kind, d.rows, d.bad) for d, _ in decoded), schema.shape),
            schema_ids=tuple(g.schema_id for g in schema.groups),
            change_schemas=frozenset(group.schema_id for (_, landed), group in kinds if landed.kind == "change"),
            erased=passed_over,
        )
        return Decoded(intake=intake, groups=tuple(decoded), good=pa.concat_tables([d.good for d, _ in decoded]))

    def _landed(self, raw: RawGroup) -> Landed:
        probed = raw.files[0]
        return Landed(
            kind=probed.file.kind,
            columns=probed.columns,
            label=probed.file.path,
            only_deletes=probed.file.kind == "change" and self._only_deletes(raw),
        )

    def _only_deletes(self, raw: RawGroup) -> bool:
        """Whether a group has nothing but deletes; asked only where that decides about a missing column."""
        if self.desk.spec.schema_evolution.dropped_column == "keep":
            return False
        op = match(list(raw.columns), self.desk.dialect.op_column)
        if op is None:
            return False
        values = pc.utf8_upper(pc.utf8_trim(raw.columns[op].cast(pa.string()), " "))
        return not pc.any(pc.fill_null(pc.not_equal(values, "D"), False)).as_py()

    def take_up(self) -> Decoded:
        """See `Engine.take_up`."""
        desk, state = self.desk, replace(self.state, schemas=self.plan.schemas or self.state.schemas)
        schema = plan_batch(desk.dialect, (), desk.stored_columns(), state)
        rows = batch_rows(self.tables, desk.layout.changes, self.plan.batch_id, schema.shape)
        gddl = rows.column(GDDL)
        found = {(g["source_file"], g["schema"], g["op"] != "R") for g in gddl.to_pylist()}
        loads = pc.equal(pc.struct_field(gddl, "op"), "R")
        parts = [("load", rows.filter(loads), ()), ("change", rows.filter(pc.invert(loads)), ())]
        intake = Intake(
            schema=schema,
            figures=measure([p for p in parts if p[1].num_rows], schema.shape),
            schema_ids=(),
            change_schemas=frozenset(schema_id for _, schema_id, change in found if change),
            schema_of={file: schema_id for file, schema_id, _ in found},
        )
        return Decoded(intake=intake, groups=(), good=rows)

    def without_rows(self) -> Decoded:
        """See `Engine.without_rows`."""
        desk = self.desk
        schema = plan_batch(desk.dialect, (), desk.stored_columns(), self.state)
        intake = Intake(schema=schema, figures=NOTHING, schema_ids=(), change_schemas=frozenset())
        return Decoded(intake=intake, groups=(), good=change_schema(schema.shape).empty_table())

    def _take_in_again(self) -> Decoded | None:
        """Decode the unresolved rows of the quarantine once more; None when there are none."""
        label = f"quarantine of {self.desk.spec.table}"
        raws = []
        for again in quarantine.groups_to_replay(self.tables, self.desk.layout.errors, self.plan.planned_at):
            landed = Landed(kind=again.kind, columns=again.columns, label=label, only_deletes=False)
            raws.append((again.raw, landed))
        return self._decode_groups(raws) if raws else None


def change_schema(shape: Shape) -> pa.Schema:
    """The columns of the change table in the shape's order."""
    kinds = {c.name: arrow_type(c.type) for c in (*shape.data, *shape.before)}
    fields = [pa.field(n, kinds.get(n, pa.string())) for n in shape.change_columns]
    return pa.schema([*fields, pa.field(GDDL, arrow_type(parse_type(shape.gddl_type)))])


def batch_rows(tables: Tables, path: str, batch_id: str, shape: Shape) -> pa.Table:
    """What a batch has appended to the change table."""

    def may_hold(file: DataFile) -> bool:
        low, high = file.low.get(GDDL) or {}, file.high.get(GDDL) or {}
        return not low.get("batch_id") or low["batch_id"] <= batch_id <= high["batch_id"]

    rows = tables.read(path, may_hold)
    mine = pc.equal(pc.struct_field(rows.column(GDDL), "batch_id"), batch_id)
    return by_name(rows.filter(mine), change_schema(shape))
