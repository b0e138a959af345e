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
from spark_jobs.engines.base import DeclinedError, TableContext
from spark_jobs.engines.decoding import Decoding, Files, asks_for_deletes, landed
from spark_jobs.engines.delta_rs import quarantine
from spark_jobs.engines.delta_rs.tables import DataFile, Tables
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.batch_schema import plan_batch
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.decode import DecodedGroup, are_deletes
from spark_jobs.rules.decoded_batch import DecodedBatch, Landed
from spark_jobs.rules.figures import NOTHING
from spark_jobs.rules.measure import combined, distinct, figures_of, measure
from spark_jobs.rules.read import FileRows, RawGroup, grouped, read_file


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A batch's rows."""

    decoded_batch: DecodedBatch
    groups: tuple[DecodedGroup, ...]
    good: pa.Table


@dataclass(frozen=True, kw_only=True)
class BatchReader:
    """The way in of one batch."""

    tables: Tables
    context: TableContext
    plan: BatchPlan
    state: TableState

    def decode_files(self) -> tuple[Decoded | None, tuple[Unreadable, ...]]:
        """See `Engine.decode_files`."""
        if self.plan.source == "quarantine":
            return self._decode_records(), ()
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
        alike = groups(files)
        raws = [grouped(group, found, ordinals) for group in alike]
        return self._decode_groups(
            [(raw, self._landed(raw)) for raw in raws], Files(groups=alike, unreadable=unreadable)
        )

    def _decode_groups(self, raws: Sequence[tuple[RawGroup, Landed]], files: Files | None = None) -> Decoded:
        """Plan the schema for groups of raw rows and decode them."""
        decoding = Decoding.planned(self.context, self.plan, self.state, [like for _, like in raws])
        parts = [decoding.decoder.part(number, raw) for number, (raw, _) in enumerate(raws)]
        good = pa.concat_tables([group.good for group, _ in parts])
        table_schema = decoding.schema.table_schema
        whole = combined([figures for _, figures in parts], table_schema)
        return Decoded(
            decoded_batch=decoding.batch(whole, distinct(good, table_schema), files),
            groups=tuple(group for group, _ in parts),
            good=good,
        )

    def _landed(self, raw: RawGroup) -> Landed:
        probed = raw.files[0]
        wanted = asks_for_deletes(self.context, probed.file.kind)
        op = match(list(raw.columns), self.context.dialect.op_column) if wanted else None
        return landed(probed, only_deletes=op is not None and are_deletes(raw.columns[op]))

    def resume_from_changes(self) -> Decoded:
        """See `Engine.resume_from_changes`."""
        context, state = self.context, replace(self.state, schemas=self.plan.schemas or self.state.schemas)
        schema = plan_batch(context.dialect, (), context.stored_columns(), state)
        rows = batch_rows(self.tables, context.layout.changes, self.plan.batch_id, schema.table_schema)
        gddl = rows.column(GDDL)
        found = {(g["source_file"], g["schema"], g["op"] != "R") for g in gddl.to_pylist()}
        loads = pc.equal(pc.struct_field(gddl, "op"), "R")
        parts = [DecodedGroup(kind="load", rows=rows.filter(loads)),
                 DecodedGroup(kind="change", rows=rows.filter(pc.invert(loads)))]  # fmt: skip
        whole = combined([measure(p, schema.table_schema) for p in parts], schema.table_schema)
        decoded_batch = DecodedBatch(
            schema=schema,
            figures=figures_of(whole, schema.table_schema, distinct(rows, schema.table_schema)),
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

    def _decode_records(self) -> Decoded | None:
        """Decode the unresolved rows of the quarantine once more; None when there are none."""
        label = f"quarantine of {self.context.spec.table}"
        waiting = quarantine.groups_to_replay(self.tables, self.context.layout.errors, self.plan.planned_at)
        raws = [(w.raw, Landed(kind=w.kind, columns=w.columns, label=label, only_deletes=False)) for w in waiting]
        return self._decode_groups(raws) if raws else None


def batch_rows(tables: Tables, path: str, batch_id: str, table_schema: TableSchema) -> pa.Table:
    """What a batch has appended to the change table."""

    def may_hold(file: DataFile) -> bool:
        low, high = file.low.get(GDDL) or {}, file.high.get(GDDL) or {}
        return not low.get("batch_id") or low["batch_id"] <= batch_id <= high["batch_id"]

    rows = tables.read(path, may_hold)
    mine = pc.equal(pc.struct_field(rows.column(GDDL), "batch_id"), batch_id)
    return by_name(rows.filter(mine), change_schema(table_schema))
