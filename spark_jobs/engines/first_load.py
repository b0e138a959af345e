"""The first load of a table, in one pass: a task decodes a part of a file and writes the data files of all tables.

Each part leaves a report below the ledger when its files are written. A load that is resumed works on the parts that
have none; the steps of the batch only name the files in commits. What was written and is named by no commit is removed
like the files of any failed writer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol
from urllib.parse import unquote

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import GddlError, QuarantinableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.stores import Storage
from spark_jobs.dialects.probe import probe_all, reading
from spark_jobs.dialects.probed import Probed, Unreadable, begin_a_table, groups
from spark_jobs.engines import table_definition
from spark_jobs.engines.base import TableContext
from spark_jobs.engines.batch_steps import TablesOfAnother, TableWork
from spark_jobs.engines.decoding import Decoder, Decoding, Fault, fault_of, landed, out_of_memory, raise_fault
from spark_jobs.engines.delta_rs.data_files import Target
from spark_jobs.engines.delta_rs.features import is_settable
from spark_jobs.engines.delta_rs.log_commits import Action
from spark_jobs.engines.places import Place
from spark_jobs.engines.splits import MOST_BYTES, Split, splits
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.engines.transactions import APPEND, MERGE, QUARANTINE, version_of
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules import error_rows
from spark_jobs.rules.decode import DecodedGroup, Stamp
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import Appended, Applied, Overlap
from spark_jobs.rules.measure import PartFigures, combined, distinct
from spark_jobs.rules.read import grouped, read_file
from spark_jobs.rules.sweep import undeleted

CHANGES, REPLICA, ERRORS = "changes", "replica", "errors"


class FileTables(Protocol):
    """Delta tables whose data files are there before their commits."""

    def create_around(self, definition: TableDefinition) -> None:
        """Create the table unless it exists, in a folder that may hold data files."""
        ...

    def add_files(
        self, path: str, transaction: tuple[str, int], files: Sequence[Action], metrics: Mapping[str, int]
    ) -> None:
        """Name data files in a commit; once for each transaction.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class PartReport:
    """What became of a part.

    Attributes:
        path: ledger path of its file.
        figures: null where the part can't be read: `code` and `reason` say why.
        keys: distinct keys among its good rows; 0: unknown.
        files: table to its data files, as a commit names them.
        error: a fault of the store, which stops the batch: family, code, what, where, remedy.
    """

    path: str
    figures: PartFigures | None = None
    keys: int = 0
    files: Mapping[str, list[Action]]
    code: str = ""
    reason: str = ""
    error: Fault = ()

    def to_json(self) -> str:
        figures = None if self.figures is None else self.figures.to_json()
        return json.dumps([self.path, figures, self.keys, self.files, self.code, self.reason, self.error])

    @classmethod
    def from_json(cls, text: str) -> PartReport:
        path, figures, keys, files, code, reason, error = json.loads(text)
        read = None if figures is None else PartFigures.from_json(figures)
        return cls(path=path, figures=read, keys=keys, files=files, code=code, reason=reason, error=tuple(error))


@dataclass(frozen=True, kw_only=True)
class WritePart:
    """Decodes a part and writes its data files.

    Attributes:
        reports: folder of the reports.
        row: what decides how rows are decoded, as text: a part of another row is not taken for this one.
    """

    decoder: Decoder
    targets: Mapping[str, Target]
    reports: str
    row: str
    now: int

    def __call__(self, storage: Storage, part: Split) -> bytes:
        report = self._report(storage, part)
        data = report.to_json().encode()
        if report.figures is not None:
            storage.write(self.report_of(part), data)
        return data

    def file_of(self, part: Split) -> str:
        return part.file.file.path

    def report_of(self, part: Split) -> str:
        """Path of a part's report."""
        file, groups = part.file.file, part.row_groups
        ends = None if groups is None else [groups.start, groups.stop]
        known = json.dumps([self.row, file.path, file.etag, file.fingerprint, file.generation, part.ordinal, ends])
        return join(self.reports, f"{hashlib.blake2b(known.encode(), digest_size=16).hexdigest()}.json")

    def _report(self, storage: Storage, part: Split) -> PartReport:
        path = part.file.file.path
        try:
            with reading(part.file.file):
                found = read_file(storage, part.file, part.row_groups)
                if isinstance(found, Unreadable):
                    return PartReport(path=path, files={}, code=found.code, reason=found.reason)
                raw = grouped([part.file], {path: found}, {path: part.ordinal})
                group, figures = self.decoder.part(part.group, raw)
        except MemoryError as error:
            return PartReport(path=path, files={}, error=fault_of(out_of_memory(path, error)))
        except QuarantinableError as error:
            return PartReport(path=path, files={}, code=error.code, reason=error.what)
        except GddlError as error:
            return PartReport(path=path, files={}, error=fault_of(error))
        try:
            keys = distinct(group.good, self.decoder.table_schema)[1]
            return PartReport(path=path, figures=figures, keys=keys, files=self._write(storage, group))
        except GddlError as error:
            return PartReport(path=path, files={}, error=fault_of(error))

    def _write(self, storage: Storage, group: DecodedGroup) -> dict[str, list[Action]]:
        good = group.good
        rows = {CHANGES: good, REPLICA: undeleted(good) if self._is_soft else good}
        if group.bad:
            rows[ERRORS] = error_rows.of_rows(group, self.decoder.stamp)
        return {name: self.targets[name].write(storage, table, self.now) for name, table in rows.items()}

    @property
    def _is_soft(self) -> bool:
        return self.decoder.table_schema.spec.delete == "soft"


@dataclass(frozen=True, kw_only=True)
class _Written:
    """A load whose parts are written; also files that turned out to be unreadable."""

    batch: DecodedBatch
    files: Mapping[str, list[Action]]
    damaged: tuple[Unreadable, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FirstLoadReader:
    """Decodes and writes the files of a table's first batch."""

    context: TableContext
    plan: BatchPlan
    state: TableState
    tables: FileTables
    place: Place

    def suits(self) -> bool:
        """Whether the batch is a first load that can be written so: new tables, of no features that others decide."""
        spec, layout, engine = self.context.spec, self.context.layout, self.context.engine
        if self.state.keys is not None or spec.shard is not None or self.plan.source != "files":
            return False
        if any(file.kind != "load" for file in self.plan.files) or not is_settable(spec.table_properties):
            return False
        paths = (layout.changes, layout.replica, layout.history, layout.errors)
        return self._is_begun or not any(map(engine.exists, paths))

    @cached_property
    def _is_begun(self) -> bool:
        return self.context.resumed and any(True for _ in self.context.storage.list(self._reports))

    @property
    def _reports(self) -> str:
        return join(self.context.layout.state, "parts", f"{self.plan.batch_id}-{version_of(self.plan)}")

    def decode_files(self) -> tuple[FirstLoad | None, tuple[Unreadable, ...]] | None:
        """See `Engine.decode_files`; None: the batch is to be loaded in the usual way, and nothing is left of it."""
        files, unreadable = probe_all(self.context.storage, self.plan.files, self.context.dialect)
        while files and begin_a_table(files):
            if any(file.translated for file in files):
                return None
            written = self._written(files)
            if written is None:
                return None
            unreadable = (*unreadable, *written.damaged)
            if not written.damaged:
                schema = written.batch.schema.table_schema
                work = self.context.engine.table_work(self.context, self.plan, schema)
                load = FirstLoad(
                    context=self.context, plan=self.plan, reports=self._reports, new_tables=self.tables, work=work,
                    decoded_batch=written.batch, files=written.files,
                )  # fmt: skip
                return load, unreadable
            bad = {u.file.path for u in written.damaged}
            files = tuple(f for f in files if f.file.path not in bad)
        return None, unreadable

    def _written(self, files: Sequence[Probed]) -> _Written | None:
        """The parts of readable files, written; None where rows repeat, so that they have to be compared."""
        alike = groups(files)
        looks = [landed(self.context, group[0], lambda _: False) for group in alike]
        decoding = Decoding.planned(self.context, self.plan, self.state, looks)
        ordinals = {file.path: number for number, file in enumerate(self.plan.files)}
        parts = splits(alike, ordinals, self.place.slots, most=MOST_BYTES)
        work = self._work(decoding)
        reports = self._reported(work, parts)
        planned = {file.path: file for file in self.plan.files}
        damaged = {r.path: Unreadable(planned[r.path], r.code, r.reason) for r in reports if r.figures is None}
        whole = combined([r.figures for r in reports if r.figures is not None], decoding.schema.table_schema)
        found = {name: [action for r in reports for action in r.files.get(name, [])] for name in work.targets}
        if damaged:
            return _Written(batch=decoding.batch(whole, (0, 0), alike), files={}, damaged=tuple(damaged.values()))
        keys = self._keys(reports, work, decoding.schema.table_schema)
        batch = decoding.batch(whole, (keys, keys), alike)
        if batch.figures.may_repeat(decoding.schema.table_schema):
            self._discard(work, found)
            return None
        return _Written(batch=batch, files=found)

    def _work(self, decoding: Decoding) -> WritePart:
        schema, layout, tier = decoding.schema.table_schema, self.context.layout, self.context.tier
        targets = {
            CHANGES: Target.of(table_definition.changes(schema, layout.changes, tier)),
            REPLICA: Target.of(table_definition.replica(schema, layout.replica, tier)),
            ERRORS: Target.of(table_definition.errors(layout.errors)),
        }
        raw = [(group.raw, group.stated, group.schema_id) for group in decoding.decoder.groups]
        kinds = [(column.name, str(column.type)) for column in (*schema.data, *schema.before)]
        erased = sorted(decoding.decoder.erased.hashes)
        row = json.dumps([to_json(schema.spec), raw, kinds, schema.sequence_type, erased])
        return WritePart(
            decoder=decoding.decoder.to_send(), targets=targets, reports=self._reports, row=row,
            now=version_of(self.plan) // 1000,
        )  # fmt: skip

    def _reported(self, work: WritePart, parts: Sequence[Split]) -> list[PartReport]:
        """Reports of all parts; those that an earlier attempt has written are not written again.

        Raises:
            GddlError: a fault of the store.
        """
        storage = self.context.storage
        there = {item.path for item in storage.list(self._reports)}
        done = [part for part in parts if work.report_of(part) in there]
        found = [storage.read(work.report_of(part)) for part in done]
        found += self.place.run(work, [part for part in parts if work.report_of(part) not in there])
        reports = [PartReport.from_json(data.decode()) for data in found]
        for report in reports:
            raise_fault(report.error)
        return reports

    def _keys(self, reports: Sequence[PartReport], work: WritePart, schema: TableSchema) -> int:
        """Distinct keys among good rows; 0 where unknown, or there are none.

        Of parts whose ranges don't meet they add up; else the key columns of the written files are read.
        """
        good = [r for r in reports if r.figures is not None and r.figures.loads]
        if not schema.keys or not all(r.keys for r in good):
            return 0
        ends = sorted(_range(r.figures) for r in good if r.figures is not None)
        apart = all(low is not None for low, _ in ends) and len(schema.keys) == 1
        if apart and all(first[1] < second[0] for first, second in pairwise(ends)):
            return sum(r.keys for r in good)
        target = work.targets[CHANGES]
        files = [_path_of(target, action) for r in good for action in r.files.get(CHANGES, [])]
        return self.place.distinct(files, schema.keys) if files else 0

    def _discard(self, work: WritePart, found: Mapping[str, Iterable[Action]]) -> None:
        """Remove what was written, and the reports."""
        storage = self.context.storage
        paths = [_path_of(work.targets[name], action) for name, files in found.items() for action in files]
        storage.delete(*paths, *(item.path for item in storage.list(self._reports)))


def _path_of(target: Target, action: Action) -> str:
    return join(target.path, unquote(action["add"]["path"]))


def _range(figures: PartFigures) -> tuple[Any, Any]:
    """Lowest and highest key of a part whose order is that of its JSON values; nulls where it isn't known."""
    low, high = (None if text is None else json.loads(text) for text in (figures.low, figures.high))
    return (low, high) if isinstance(low, int) else (None, None)


@dataclass(frozen=True, kw_only=True)
class FirstLoad:
    """See `BatchWork`, `AppendedWork` and `MergeWork`: the rows of a first load need no comparison.

    Attributes:
        work: the engine's steps on whole tables.
        reports: folder of the parts' reports.
        files: table to the data files that are written.
    """

    context: TableContext
    plan: BatchPlan
    reports: str
    new_tables: FileTables
    work: TableWork
    decoded_batch: DecodedBatch
    files: Mapping[str, list[Action]]

    @property
    def tables(self) -> _NewTables:
        return _NewTables(self.work, load=self)

    @property
    def _schema(self) -> TableSchema:
        return self.decoded_batch.schema.table_schema

    @property
    def definitions(self) -> tuple[TableDefinition, ...]:
        return table_definition.definitions(self._schema, self.context.layout, self.context.tier)

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:  # noqa: ARG002 - no table before
        path, added = self.context.layout.errors, list(self.files.get(ERRORS, []))
        if not files and not added:
            return
        definition = table_definition.errors(path)
        self.new_tables.create_around(definition)
        rows = error_rows.of_files(files, Stamp.of(self.plan))
        added += Target.of(definition).write(self.context.storage, rows, version_of(self.plan) // 1000)
        self._commit(path, QUARANTINE, added, self.decoded_batch.figures.quarantined + len(files))

    def append(self, overlap: Overlap) -> FirstLoad:  # noqa: ARG002 - no earlier batch had rows
        self._commit(self.context.layout.changes, APPEND, self.files[CHANGES], self._good)
        return self

    @property
    def appended(self) -> Appended:
        return self.decoded_batch.figures.appended(self._good, self._good, batch=self.plan.number)

    @property
    def _good(self) -> int:
        return self.decoded_batch.figures.good

    def resolve_rows(self) -> None:
        """Nothing was in quarantine before."""

    def tombstones(self) -> FirstLoad:
        """A full load deletes nothing."""
        return self

    def merge(self) -> Applied:
        self._commit(self.context.layout.replica, MERGE, self.files[REPLICA], self._good)
        if not self.context.spec.history:
            self.forget_reports()
        return Applied(main=MainCounts(inserted=self._good))

    def append_only(self) -> Applied:
        return self.merge()

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        self.tables.history(generation_low_watermarks, swept=swept)

    def forget_reports(self) -> None:
        """A run that is killed before its last commit decodes the files again, for their figures alone."""
        storage = self.context.storage
        storage.delete(*(item.path for item in storage.list(self.reports)))

    def _commit(self, path: str, app: str, files: Sequence[Action], rows: int) -> None:
        self.new_tables.add_files(path, (app, version_of(self.plan)), files, {"numOutputRows": rows})


@dataclass(frozen=True)
class _NewTables(TablesOfAnother):
    """The engine's steps, for tables that are created in folders with data files."""

    load: FirstLoad

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        for definition in self.load.definitions:
            self.load.new_tables.create_around(definition)
        return super().ensure_tables()

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        super().history(generation_low_watermarks, swept=swept)
        self.load.forget_reports()
