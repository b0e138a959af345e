"""A batch that is read and decoded as a whole, in this process's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.errors import GddlError, QuarantinableError
from spark_jobs.dialects.probe import probe_all, reading
from spark_jobs.dialects.probed import Probed, Unreadable, begin_a_table, groups
from spark_jobs.engines.base import DeclinedError, TableContext
from spark_jobs.engines.decoding import Decoding, landed, resumed_batch, resumed_schema
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.batch_schema import Landed
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.decode import DecodedGroup, are_deletes
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.measure import combined, distinct, figures_of, measure
from spark_jobs.rules.quarantine import to_replay
from spark_jobs.rules.read import FileRows, RawGroup, grouped, read_file


@dataclass(frozen=True, kw_only=True)
class WholeBatch:
    """A batch's rows.

    Attributes:
        groups: decoded groups with bad rows; empty for a batch that resumes from the change table.
        good: columns of `change_schema`.
    """

    decoded_batch: DecodedBatch
    groups: tuple[DecodedGroup, ...]
    good: pa.Table


@dataclass(frozen=True, kw_only=True)
class WholeBatchReader:
    """Reads and decodes the files or records of one batch."""

    context: TableContext
    plan: BatchPlan
    state: TableState

    def decode(self, errors: pa.Table | None) -> tuple[WholeBatch | None, tuple[Unreadable, ...]]:
        """See `Engine.decode_files`.

        Args:
            errors: the errors table, for a batch that replays its records; None where there is none.
        """
        return (self._decode_records(errors), ()) if self.plan.source == "quarantine" else self._decode_files()

    def _decode_files(self) -> tuple[WholeBatch | None, tuple[Unreadable, ...]]:
        probed, unreadable = probe_all(self.context.storage, self.plan.files, self.context.dialect)
        read = {p.file.path: read_file(self.context.storage, p) for p in probed}
        bad = tuple(r for r in read.values() if isinstance(r, Unreadable))
        found = {path: r for path, r in read.items() if isinstance(r, FileRows)}
        unreadable = (*unreadable, *bad)
        files = [p for p in probed if p.file.path in found]
        if not files or (self.state.keys is None and not begin_a_table(files)):
            return None, unreadable
        try:
            return self._decode_all(files, found), unreadable
        except (GddlError, DeclinedError, MemoryError):
            raise
        except Exception:
            damaged = self._damaged(files, found)
            if not damaged:
                raise
        good = [p for p in files if p.file.path not in {u.file.path for u in damaged}]
        return (self._decode_all(good, found) if good else None), (*unreadable, *damaged)

    def _damaged(self, files: Sequence[Probed], found: Mapping[str, FileRows]) -> tuple[Unreadable, ...]:
        """Decode every file separately, to find those whose values can be read but not decoded."""
        bad = []
        for probed in files:
            try:
                with reading(probed.file):
                    self._decode_all([probed], found)
            except QuarantinableError as error:
                bad.append(Unreadable(probed.file, error.code, error.what))
        return tuple(bad)

    def _decode_all(self, files: Sequence[Probed], found: Mapping[str, FileRows]) -> WholeBatch:
        ordinals = {file.path: i for i, file in enumerate(self.plan.files)}
        alike = groups(files)
        raws = [grouped(group, found, ordinals) for group in alike]
        return self._decode_groups([(raw, self._landed(raw)) for raw in raws], alike)

    def _decode_groups(
        self, raws: Sequence[tuple[RawGroup, Landed]], files: Sequence[Sequence[Probed]] = ()
    ) -> WholeBatch:
        """Plan the schema for groups of raw rows and decode them."""
        decoding = Decoding.planned(self.context, self.plan, self.state, [like for _, like in raws],
                                    [file for group in files for file in group])  # fmt: skip
        parts = [decoding.decoder.part(number, raw) for number, (raw, _) in enumerate(raws)]
        good = pa.concat_tables([group.good for group, _ in parts])
        table_schema = decoding.schema.table_schema
        whole = combined([figures for _, figures in parts], table_schema)
        return WholeBatch(
            decoded_batch=decoding.batch(whole, distinct(good, table_schema), files),
            groups=tuple(group for group, _ in parts),
            good=good,
        )

    def _landed(self, raw: RawGroup) -> Landed:
        return landed(self.context, raw.files[0], lambda op: are_deletes(raw.columns[op]))

    def _decode_records(self, errors: pa.Table | None) -> WholeBatch | None:
        """Decode the unresolved rows of the errors table again; None when there are none."""
        label = f"quarantine of {self.context.spec.table}"
        if errors is not None and self.context.spec.shard is not None:
            errors = errors.filter(pc.starts_with(errors.column("source_file"), f"{self.context.layout.landing}/"))
        waiting = [] if errors is None else to_replay(errors, self.plan.planned_at, self.plan.codes)
        raws = [(w.raw, Landed(kind=w.kind, columns=w.columns, label=label, only_deletes=False)) for w in waiting]
        return self._decode_groups(raws) if raws else None

    def resume(self, rows: pa.Table) -> WholeBatch:
        """See `Engine.resume_from_changes`; `rows`: the batch's rows of the change table."""
        schema = resumed_schema(self.context, self.plan, self.state)
        table_schema = schema.table_schema
        rows = by_name(rows, change_schema(table_schema))
        gddl = rows.column(GDDL)
        loads = pc.equal(pc.struct_field(gddl, "op"), "R")
        parts = [DecodedGroup(kind="load", rows=rows.filter(loads)),
                 DecodedGroup(kind="change", rows=rows.filter(pc.invert(loads)))]  # fmt: skip
        whole = combined([measure(p, table_schema) for p in parts], table_schema)
        figures = figures_of(whole, table_schema, distinct(rows, table_schema))
        found = {(g["source_file"], g["schema"], g["op"] != "R") for g in gddl.to_pylist()}
        return WholeBatch(decoded_batch=resumed_batch(schema, figures, found), groups=(), good=rows)
