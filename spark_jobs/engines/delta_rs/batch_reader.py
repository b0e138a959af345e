"""From a plan's files to decoded changes: probe, read, group, plan the schema, decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.errors import GddlError, QuarantinableError
from spark_jobs.dialects.probe import probe_all, reading
from spark_jobs.dialects.probed import Probed, Unreadable, begin_a_table, groups
from spark_jobs.dialects.roles import match
from spark_jobs.engines.base import DeclinedError
from spark_jobs.engines.delta_rs import quarantine
from spark_jobs.engines.delta_rs.erasing import without_erased
from spark_jobs.engines.delta_rs.tables import DataFile, Tables
from spark_jobs.engines.errors_table import record_ddl
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.types import parse_type
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.decode import DecodedGroup, decode
from spark_jobs.rules.delivery import GroupDecoding
from spark_jobs.rules.figures import NOTHING
from spark_jobs.rules.measure import measure
from spark_jobs.rules.read import FileRows, RawGroup, grouped, read_file
from spark_jobs.table.batch_schema import plan_batch
from spark_jobs.table.context import TableContext
from spark_jobs.table.decoded_batch import DecodedBatch, Landed
from spark_jobs.table.table_schema import GDDL, TableSchema


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A batch's rows, with the record DDL of each group for the quarantine."""

    decoded_batch: DecodedBatch
    groups: tuple[tuple[DecodedGroup, str], ...]
    good: pa.Table


@dataclass(frozen=True, kw_only=True)
class BatchReader:
    """The way in of one batch."""

    tables: Tables
    context: TableContext
    plan: BatchPlan
    state: TableState

    def decode_files(self) -> tuple[Decoded | None, tuple[Unreadable, ...]]:
        """See `Engine.take_in`."""
        if self.plan.source == "quarantine":
            return self._take_in_again(), ()
        probed, unreadable = probe_all(self.context.storage, self.plan.files, self.context.dialect)
        read = {p.file.path: read_file(self.context.storage, p) for p in probed}
        bad = tuple(r for r in read.values() if isinstance(r, Unreadable))
        found = {path: r for path, r in read.items() if isinstance(r, FileRows)}
        unreadable = (*unreadable, *bad)
        files = [p for p in probed if p.file.path in found]
        if self.state.keys is None and not begin_a_table(files):
            return None, unreadable
        if not files:
            return None, unreadable
        try:
            return self._decode_all(files, found, unreadable), unreadable
        except (GddlError, DeclinedError, MemoryError):
            raise
        except Exception:
            damaged = self._damaged(files, found)
            if not damaged:
                raise
        good = [p for p in files if p.file.path not in {u.file.path for u in damaged}]
        unreadable = (*unreadable, *damaged)
        return (self._decode_all(good, found, unreadable) if good else None), unreadable

    def _damaged(self, files: Sequence[Probed], found: Mapping[str, FileRows]) -> tuple[Unreadable, ...]:
        """Decode every file alone, to find those whose values can be read but not decoded."""
        bad = []
        for probed in files:
            try:
                with reading(probed.file):
                    self._decode_all([probed], found, ())
            except QuarantinableError as error:
                bad.append(Unreadable(probed.file, error.code, error.what))
        return tuple(bad)

    def _decode_all(
        self, files: Sequence[Probed], found: Mapping[str, FileRows], unreadable: tuple[Unreadable, ...]
    ) -> Decoded:
        ordinals = {file.path: i for i, file in enumerate(self.plan.files)}
        raws = [grouped(group, found, ordinals) for group in groups(files)]
        decoded = self._decode_groups([(raw, self._landed(raw)) for raw in raws])
        ids, passed_over = decoded.decoded_batch.schema_ids, decoded.decoded_batch.erased
        counted = [f.rows for f in files]
        decoded_batch = replace(
            decoded.decoded_batch,
            unreadable=unreadable,
            schema_of={f.file.path: id_ for raw, id_ in zip(raws, ids, strict=True) for f in raw.files},
            rows_by_footer=None if None in counted else sum(c for c in counted if c is not None) - passed_over,
        )
        return replace(decoded, decoded_batch=decoded_batch)

    def _decode_groups(self, raws: Sequence[tuple[RawGroup, Landed]]) -> Decoded:
        """Plan the schema for groups of raw rows and decode them."""
        context, stored = self.context, self.context.stored_columns()
        schema = plan_batch(context.dialect, [landed for _, landed in raws], stored, self.state)
        decoded, erased, passed_over = [], context.erasures.keys(self.plan.files), 0
        for (raw, landed), group in zip(raws, schema.groups, strict=True):
            how = GroupDecoding(
                raw=landed.columns, kind=landed.kind, plan=group.plan, before=group.before,
                schema_id=group.schema_id, dialect=context.dialect, masks=group.masks,
            )  # fmt: skip
            ddl = record_ddl(how.raw, how.masks, raw.nanos)
            rows, gone = without_erased(decode(raw, how, schema.table_schema, self.plan), schema.table_schema, erased)
            decoded.append((rows, ddl))
            passed_over += gone
        kinds = zip(raws, schema.groups, strict=True)
        decoded_batch = DecodedBatch(
            schema=schema,
            figures=measure(((d.kind, d.rows, d.bad) for d, _ in decoded), schema.table_schema),
            schema_ids=tuple(g.schema_id for g in schema.groups),
            change_schemas=frozenset(group.schema_id for (_, landed), group in kinds if landed.kind == "change"),
            erased=passed_over,
        )
        return Decoded(
            decoded_batch=decoded_batch, groups=tuple(decoded), good=pa.concat_tables([d.good for d, _ in decoded])
        )

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
        if self.context.spec.schema_evolution.dropped_column == "keep":
            return False
        op = match(list(raw.columns), self.context.dialect.op_column)
        if op is None:
            return False
        values = pc.utf8_upper(pc.utf8_trim(raw.columns[op].cast(pa.string()), " "))
        return not pc.any(pc.fill_null(pc.not_equal(values, "D"), False)).as_py()

    def resume_from_changes(self) -> Decoded:
        """See `Engine.take_up`."""
        context, state = self.context, replace(self.state, schemas=self.plan.schemas or self.state.schemas)
        schema = plan_batch(context.dialect, (), context.stored_columns(), state)
        rows = batch_rows(self.tables, context.layout.changes, self.plan.batch_id, schema.table_schema)
        gddl = rows.column(GDDL)
        found = {(g["source_file"], g["schema"], g["op"] != "R") for g in gddl.to_pylist()}
        loads = pc.equal(pc.struct_field(gddl, "op"), "R")
        parts = [("load", rows.filter(loads), ()), ("change", rows.filter(pc.invert(loads)), ())]
        decoded_batch = DecodedBatch(
            schema=schema,
            figures=measure([p for p in parts if p[1].num_rows], schema.table_schema),
            schema_ids=(),
            change_schemas=frozenset(schema_id for _, schema_id, change in found if change),
            schema_of={file: schema_id for file, schema_id, _ in found},
        )
        return Decoded(decoded_batch=decoded_batch, groups=(), good=rows)

    def without_rows(self) -> Decoded:
        """See `Engine.without_rows`."""
        context = self.context
        schema = plan_batch(context.dialect, (), context.stored_columns(), self.state)
        decoded_batch = DecodedBatch(schema=schema, figures=NOTHING, schema_ids=(), change_schemas=frozenset())
        return Decoded(decoded_batch=decoded_batch, groups=(), good=change_schema(schema.table_schema).empty_table())

    def _take_in_again(self) -> Decoded | None:
        """Decode the unresolved rows of the quarantine once more; None when there are none."""
        label = f"quarantine of {self.context.spec.table}"
        raws = []
        for again in quarantine.groups_to_replay(self.tables, self.context.layout.errors, self.plan.planned_at):
            landed = Landed(kind=again.kind, columns=again.columns, label=label, only_deletes=False)
            raws.append((again.raw, landed))
        return self._decode_groups(raws) if raws else None


def change_schema(table_schema: TableSchema) -> pa.Schema:
    """The columns of the change table in the shape's order."""
    kinds = {c.name: arrow_type(c.type) for c in (*table_schema.data, *table_schema.before)}
    fields = [pa.field(n, kinds.get(n, pa.string())) for n in table_schema.change_columns]
    return pa.schema([*fields, pa.field(GDDL, arrow_type(parse_type(table_schema.gddl_type)))])


def batch_rows(tables: Tables, path: str, batch_id: str, table_schema: TableSchema) -> pa.Table:
    """What a batch has appended to the change table."""

    def may_hold(file: DataFile) -> bool:
        low, high = file.low.get(GDDL) or {}, file.high.get(GDDL) or {}
        return not low.get("batch_id") or low["batch_id"] <= batch_id <= high["batch_id"]

    rows = tables.read(path, may_hold)
    mine = pc.equal(pc.struct_field(rows.column(GDDL), "batch_id"), batch_id)
    return by_name(rows.filter(mine), change_schema(table_schema))
