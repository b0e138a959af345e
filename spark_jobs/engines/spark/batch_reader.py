"""From a plan's files to decoded changes: probe, group, plan the schema, read, decode."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.layout import join
from spark_jobs.dialects.base import Dialect
from spark_jobs.dialects.probe import probe_all
from spark_jobs.dialects.probed import Probed, Unreadable, begin_a_table, groups
from spark_jobs.dialects.roles import match
from spark_jobs.engines.errors_table import record_ddl
from spark_jobs.engines.spark import quarantine
from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.decode import ERROR, KIND, GroupDecoding, Stamp, decode
from spark_jobs.engines.spark.erasing import without_erased
from spark_jobs.engines.spark.measure import measure
from spark_jobs.engines.spark.read import MALFORMED, RawGroup, read_group, union
from spark_jobs.engines.spark.tables import Tables, sql_text
from spark_jobs.job.faults import translated
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.table.batch_schema import GroupSchema, plan_batch
from spark_jobs.table.context import TableContext
from spark_jobs.table.decoded_batch import DecodedBatch, Landed
from spark_jobs.table.table_schema import GDDL

_KEEP_BYTES = 256 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A batch's rows.

    Attributes:
        groups: decoded rows and record DDL of each group, for the quarantine.
        rows: all rows.
        kept: they are at hand, and needn't be decoded again when they are asked for again.
    """

    decoded_batch: DecodedBatch
    groups: tuple[tuple[DataFrame, str], ...]
    rows: DataFrame
    kept: bool = False


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
        readable, unreadable = probe_all(self.context.storage, self.plan.files, self.context.dialect, self._staged)
        if not readable or (self.state.keys is None and not begin_a_table(readable)):
            return None, unreadable
        try:
            return self._decode_all(readable, unreadable), unreadable
        except (PySparkException, Py4JJavaError):
            damaged = self._damaged(readable)
            if not damaged:
                raise
            bad = {u.file.path for u in damaged}
            good = tuple(f for f in readable if f.file.path not in bad)
            unreadable = (*unreadable, *damaged)
            return (self._decode_all(good, unreadable) if good else None), unreadable

    def _decode_all(self, files: Sequence[Probed], unreadable: tuple[Unreadable, ...]) -> Decoded:
        places = self._places(files)
        raws = [read_group(self.tables.spark, group, places) for group in groups(files)]
        counted = [f.rows for f in files]
        decoded = self._decode_groups([(raw, self._landed(raw)) for raw in raws])
        ids, passed_over = decoded.decoded_batch.schema_ids, decoded.decoded_batch.erased
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
        stamp = Stamp(self.plan.batch_id, self.plan.planned_at)
        decoded, erased, passed_over = [], context.erasures.keys(self.plan.files), 0
        for (raw, landed), group in zip(raws, schema.groups, strict=True):
            how = _decoding(raw, landed, group, context.dialect)
            ddl = record_ddl(how.raw, how.masks, how.nanos)
            rows, gone = without_erased(decode(raw.rows, how, schema.table_schema, stamp), schema.table_schema, erased)
            decoded.append((rows, ddl))
            passed_over += gone
        rows = union(frame for frame, _ in decoded)
        kept = sum(f.size for f in self.plan.files) <= _KEEP_BYTES
        if kept:
            rows = self.tables.keep(rows)
        kinds = zip(raws, schema.groups, strict=True)
        decoded_batch = DecodedBatch(
            schema=schema,
            figures=measure(rows, schema.table_schema),
            schema_ids=tuple(g.schema_id for g in schema.groups),
            change_schemas=frozenset(group.schema_id for (_, landed), group in kinds if landed.kind == "change"),
            erased=passed_over,
        )
        return Decoded(decoded_batch=decoded_batch, groups=tuple(decoded), rows=rows, kept=kept)

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
        op = match([n for n, _ in raw.files[0].columns], self.context.dialect.op_column)
        if op is None:
            return False
        others = raw.rows.where(F.upper(F.trim(name(op).cast("string"))) != "D")
        return others.isEmpty()

    def _places(self, files: Sequence[Probed]) -> dict[str, tuple[int, str]]:
        """Ordinal in the batch and path to read from; parquet inside gzip is unwrapped beside the ledger first."""
        places = {}
        for found in files:
            ordinal, path = self._ordinals[found.file.path], found.file.path
            if found.wrapped or found.translated:
                path = self._beside(ordinal)
            if found.wrapped:
                self.context.storage.write(path, gzip.decompress(self.context.storage.read(found.file.path)))
            places[found.file.path] = (ordinal, path)
        return places

    @cached_property
    def _ordinals(self) -> dict[str, int]:
        return {file.path: i for i, file in enumerate(self.plan.files)}

    def _beside(self, ordinal: int) -> str:
        return join(self.context.layout.state, "unwrapped", f"{self.plan.batch_id}-{ordinal}.parquet")

    def _staged(self, found: Probed) -> Probed:
        """Rows that the dialect has made of a file go beside the ledger, as parquet, and out of memory."""
        if found.table is None:
            return found
        lines = pa.nulls(found.table.num_rows, pa.string()) if found.malformed is None else found.malformed
        table = found.table.append_column(MALFORMED, lines)
        sink = io.BytesIO()
        pq.write_table(table, sink)
        self.context.storage.write(self._beside(self._ordinals[found.file.path]), sink.getvalue())
        return replace(found, table=None, malformed=None)

    def _damaged(self, files: Sequence[Probed]) -> tuple[Unreadable, ...]:
        """Read every file alone and whole, to find those whose inside is damaged though the footer is not."""
        bad = []
        places = self._places(files)
        for found in files:
            rows = read_group(self.tables.spark, [found], places).rows
            columns = [name(n) for n, kind in found.columns if kind != "void" and "map<" not in kind]
            try:
                rows.select(F.xxhash64(*columns).alias("h")).agg(F.max("h")).collect()
            except (PySparkException, Py4JJavaError) as error:
                fault = translated(error)
                if fault.code != "UNEXPECTED":  # of the store, of memory: not of the file
                    raise fault from error
                bad.append(Unreadable(found.file, "FILE_UNREADABLE", fault.what[:500]))
        return tuple(bad)

    def resume_from_changes(self) -> Decoded:
        """See `Engine.take_up`."""
        context, state = self.context, replace(self.state, schemas=self.plan.schemas or self.state.schemas)
        schema = plan_batch(context.dialect, (), context.stored_columns(), state)
        op, gddl = F.col(GDDL)["op"], F.col(GDDL)
        rows = self.tables.read(context.layout.changes).where(gddl["batch_id"] == self.plan.batch_id)
        kind = F.when(op == "R", "load").otherwise("change")
        rows = rows.withColumns({ERROR: F.lit(None).cast("string"), KIND: kind})
        source = gddl["source_file"].alias("f")
        found = rows.select(source, gddl["schema"].alias("s"), (op != "R").alias("c")).distinct().collect()
        decoded_batch = DecodedBatch(
            schema=schema,
            figures=measure(rows, schema.table_schema),
            schema_ids=(),
            change_schemas=frozenset(r["s"] for r in found if r["c"]),
            schema_of={r["f"]: r["s"] for r in found},
        )
        return Decoded(decoded_batch=decoded_batch, groups=(), rows=rows)

    def _take_in_again(self) -> Decoded | None:
        """Decode the unresolved rows of the quarantine once more; None when there are none."""
        raws = []
        for again in quarantine.groups_to_replay(self.tables, self.context.layout.errors, self.plan.planned_at):
            nanos = {c: k for c, k in again.nanos.items() if k}
            columns = tuple((f.name, nanos.get(f.name, sql_text(f.dataType))) for f in again.fields)
            label = f"quarantine of {self.context.spec.table}"
            landed = Landed(kind=again.kind, columns=columns, label=label, only_deletes=False)
            raws.append((RawGroup(rows=again.rows, nanos=tuple(nanos), already_masked=True), landed))
        return self._decode_groups(raws) if raws else None


def _decoding(raw: RawGroup, landed: Landed, group: GroupSchema, dialect: Dialect) -> GroupDecoding:
    return GroupDecoding(
        raw=landed.columns,
        kind=landed.kind,
        plan=group.plan,
        before=group.before,
        schema_id=group.schema_id,
        dialect=dialect,
        masks=group.masks,
        nanos=raw.nanos,
        already_masked=raw.already_masked,
        translated=any(file.translated for file in raw.files),
    )
