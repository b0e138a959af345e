"""First half of a batch: bad rows to the quarantine, good ones that are new to the change table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import RunWarning
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_rs import evolve, quarantine, reconcile
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.batch_reader import Decoded
from spark_jobs.engines.delta_rs.features import require_creatable
from spark_jobs.engines.delta_rs.indexing import complete
from spark_jobs.engines.delta_rs.small_files import join_in_passing
from spark_jobs.engines.delta_rs.tables import DataFile
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.engines.transactions import APPEND, QUARANTINE
from spark_jobs.plan.sequence import sort_key
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.plan.types import StructType, parse_type
from spark_jobs.rules import error_rows
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.figures import Appended, Overlap
from spark_jobs.rules.history import END, START
from spark_jobs.rules.redelivery import TIED, new_changes, tie_warnings


@dataclass(frozen=True, kw_only=True)
class ChangeTableWriter:
    site: BatchContext
    decoded: Decoded

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        """See `BatchWork.ensure_tables`."""
        site, spec = self.site, self.site.table_schema.spec
        definitions = table_definition.definitions(site.table_schema, site.layout, site.tier)
        if any(not site.tables.exists(d.path) for d in definitions):
            require_creatable(spec, site.tier)
        for definition in definitions:
            extra = (START, END) if definition.path == site.layout.history else ()
            evolve.retype_sequence(site.tables, definition.path, site.table_schema, extra)
            reconcile.settle_deletes(site.tables, definition)
            evolve.ensure(site.tables, definition)
            reconcile.settle_properties(site.tables, definition)
        return self._completed(definitions)

    def _completed(self, definitions: Sequence[TableDefinition]) -> tuple[RunWarning, ...]:
        """Tables of an earlier release get the statistics that readers need."""
        layout, tables = self.site.layout, self.site.tables
        tombstones = table_definition.tombstones(self.site.table_schema, layout.tombstones)
        beside = (table_definition.errors(layout.errors), tombstones)
        kept = [d for d in beside if tables.exists(d.path)]
        files = sum(complete(tables, definition) for definition in (*definitions, *kept))
        return (table_definition.completed(files),) if files else ()

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        """See `BatchWork.quarantine`."""
        path, site = self.site.layout.errors, self.site
        if self.decoded.decoded_batch.figures.quarantined or files:
            stamp = Stamp.of(site.plan)
            rows = [error_rows.of_rows(group, stamp) for group in self.decoded.groups]
            rows.append(error_rows.of_files(files, stamp))
            quarantine.append(site.tables, path, pa.concat_tables(rows), QUARANTINE, site.transaction)
        if again and site.tables.exists(path):
            transaction = (f"{QUARANTINE}:resolve", site.transaction)
            quarantine.resolve_files(site.tables, path, again, site.plan, transaction)

    def append(self, overlap: Overlap) -> tuple[Appended, pa.Table]:
        """Append the changes that are new to the change table; with them, these changes."""
        site, figures = self.site, self.decoded.decoded_batch.figures
        table_schema, good = site.table_schema, self.decoded.good
        stored = self._stored(overlap)
        repeats = (figures.identities if table_schema.keys else figures.loads) < figures.good
        warnings: tuple[RunWarning, ...] = ()
        if repeats or stored is not None:
            found = new_changes(good, stored, table_schema)
            good, warnings = found.drop_columns([TIED]), tie_warnings(found, table_schema)
        written = self._write(good)
        redelivered = figures.good - good.num_rows
        if figures.rows != written + redelivered + figures.quarantined:
            raise FatalError(
                "BATCH_UNBALANCED",
                f"{figures.rows} rows read, but {written} appended + {redelivered} re-delivered + "
                f"{figures.quarantined} quarantined",
                where=f"batch {site.plan.number}",
                remedy="report this with the job's log; nothing was merged",
            )
        return Appended(written=written, redelivered=redelivered, warnings=warnings), good

    def _write(self, good: pa.Table) -> int:
        """Rows that the batch's commit has appended, now or in an earlier attempt."""
        site, path = self.site, self.site.layout.changes
        if site.has_made(path, APPEND):
            told = site.tables.metrics(path, APPEND, site.transaction).get("numOutputRows")
            return self._appended() if told is None else told
        if not site.begun:
            join_in_passing(site.tables, path)
        added = [good] if good.num_rows else []
        site.tables.commit(path, site.write(APPEND, added, metrics={"numOutputRows": good.num_rows}))
        return int(good.num_rows)

    def _appended(self) -> int:
        """The same counted, for a log that has forgotten the commit: it was cut, or many came after."""
        batch = self.site.plan.batch_id

        def may_hold(file: DataFile) -> bool:
            low, high = file.low.get(GDDL) or {}, file.high.get(GDDL) or {}
            return low.get("batch_id") is None or bool(low["batch_id"] <= batch <= high["batch_id"])

        rows = self.site.tables.read(self.site.layout.changes, may_hold)
        mine = pc.equal(pc.struct_field(rows.column(GDDL), "batch_id"), batch)
        return int(pc.sum(mine).as_py() or 0)

    def _stored(self, overlap: Overlap) -> pa.Table | None:
        """Rows of the change table that may equal rows of this batch; null when none can."""
        if overlap.apart:
            return None
        span = self._span() if overlap.changes else None
        generation = self.site.plan.generation if overlap.loads else None

        def may_hold(file: DataFile) -> bool:
            low, high = file.low.get(GDDL) or {}, file.high.get(GDDL) or {}
            if generation is not None and (low.get("op") is None or low["op"] <= "R" <= high["op"]):
                return True
            if span is None or low.get("sequence") is None or not isinstance(low["sequence"], type(span[0])):
                return span is not None
            return bool(low["sequence"] <= span[1] and span[0] <= high["sequence"])

        rows = self.site.tables.read(self.site.layout.changes, may_hold)
        gddl = rows.column(GDDL)
        wanted = pc.equal(pc.struct_field(gddl, "op"), "R") if generation is not None else None
        if wanted is not None:
            wanted = pc.and_(wanted, pc.equal(pc.struct_field(gddl, "generation"), generation))
        if span is not None:
            inside = self._inside(pc.struct_field(gddl, "sequence"), span)
            wanted = inside if wanted is None else pc.or_(wanted, inside)
        if wanted is None:
            return None
        others = pc.not_equal(pc.struct_field(gddl, "batch_id"), self.site.plan.batch_id)
        return by_name(rows.filter(pc.and_(pc.fill_null(wanted, False), others)), change_schema(self.site.table_schema))

    def _span(self) -> tuple[Any, Any] | None:
        """Least and greatest sequence of the batch, by the first column; as `sort_key` reads them."""
        files = self.decoded.decoded_batch.figures.files.values()
        lows = [sort_key(f.min_sequence) for f in files if f.min_sequence is not None]
        highs = [sort_key(f.max_sequence) for f in files if f.max_sequence is not None]
        return (min(lows)[0], max(highs)[0]) if lows else None

    def _inside(self, sequence: pa.ChunkedArray, span: tuple[Any, Any]) -> pa.ChunkedArray:
        kind = parse_type(self.site.table_schema.sequence_type)
        if isinstance(kind, StructType):
            sequence = pc.struct_field(sequence, kind.fields[0].name)
        if pt.is_floating(sequence.type) or pt.is_boolean(sequence.type):
            return sequence.is_valid()
        low, high = (_typed(end, sequence.type) for end in span)
        return pc.and_(pc.greater_equal(sequence, low), pc.less_equal(sequence, high))


def _typed(value: Any, kind: pa.DataType) -> pa.Scalar:
    if pt.is_temporal(kind) and isinstance(value, str):
        return pa.scalar(value.removesuffix("Z")).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(value).cast(kind) if not pt.is_decimal(kind) else pa.scalar(Decimal(value), kind)
