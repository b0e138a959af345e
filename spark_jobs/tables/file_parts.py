"""Parts of a batch's files: placed, decoded and written by tasks, and named by one commit."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa

from airflow_gddl.contract import codes
from airflow_gddl.contract.codec import from_json, plain, to_json
from airflow_gddl.contract.codes import FILE_VANISHED, OUT_OF_MEMORY
from airflow_gddl.contract.errors import FatalError, GddlError, QuarantinableError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage, read_if_there
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.sequence import sort_key
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.probe import probe_all, reading
from spark_jobs.rooms.dialects.protocol import Dialect, Probed, Unreadable, begin_a_table, groups, that_wait, with_keys
from spark_jobs.rules import quarantine
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.figures import DecodedBatch, Figures, combined, distinct
from spark_jobs.rules.file_groups import FileGroup
from spark_jobs.rules.file_rows import FileRows, grouped, read_file
from spark_jobs.rules.stale_rows import suspects
from spark_jobs.rules.stored_columns import told
from spark_jobs.rules.sweep import undeleted
from spark_jobs.tables.data_files import Target
from spark_jobs.tables.decoding import Decoder, Decoding, are_all_deletes, landed
from spark_jobs.tables.delta_log import Action, version_of
from spark_jobs.tables.places import LARGER_TIER, Place, stream_of, stream_rows
from spark_jobs.tables.table_context import TableContext

Facts = TypeVar("Facts")
_PARTS_A_SLOT = 4
"""Enough that one long part doesn't leave the other slots idle."""


@dataclass(frozen=True, kw_only=True)
class PartBounds:
    """Sizes in which the files of a first load are decoded, in bytes of files.

    Attributes:
        together: up to it, all files of a load in one task are decoded together, which takes fewer requests.
        least: smallest part, where a file can be read in parts.
        most: largest part. It is held in memory whole: decoded, a byte of Parquet takes about ten.
        in_memory: bytes of a part's raw rows, if its file can be read in parts.
    """

    together: int = 8 * 1024**2
    least: int = 4 * 1024**2
    most: int = 32 * 1024**2
    in_memory: int = 512 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Split:
    """A part of a batch's file that one task decodes.

    Attributes:
        group: index of the file's group.
        ordinal: index of the file in the batch.
        ranges: those of `Probed.ranges` to read; None: the whole file.
        size: approximate bytes.
    """

    file: Probed
    group: int
    ordinal: int
    size: int
    ranges: range | None = None


def splits(
    groups: Sequence[Sequence[Probed]],
    ordinals: dict[str, int],
    slots: int,
    bounds: PartBounds,
) -> list[Split]:
    """Every row of the files in one part.

    Args:
        groups: files that look alike.
        ordinals: ledger path to index of the file in the batch.
        slots: tasks that run at once.
    """
    total = sum(file.file.size for group in groups for file in group)
    target = min(max(bounds.least, total // (slots * _PARTS_A_SLOT)), bounds.most)
    parts = []
    for number, group in enumerate(groups):
        for file in group:
            lean = replace(file, columns=group[0].columns, table=None)  # equal: sent once
            ordinal = ordinals[file.file.path]
            for part, size in _parts(file, target, bounds.in_memory):
                parts.append(Split(file=lean, group=number, ordinal=ordinal, size=size, ranges=part))
    return parts


def _parts(file: Probed, target: int, most: int) -> Iterator[tuple[range | None, int]]:
    """Runs of ranges of about `target` bytes, by their share of the rows, and of at most `most` in memory."""
    size, rows = file.file.size, sum(part.rows for part in file.ranges)
    fits = size <= target and sum(part.size for part in file.ranges) <= most
    if fits or len(file.ranges) < 2 or not rows:
        yield None, size
        return
    start, held, memory = 0, 0, 0
    for number, part in enumerate(file.ranges):
        if held and (held * size >= target * rows or memory + part.size > most):
            yield range(start, number), held * size // rows
            start, held, memory = number, 0, 0
        held, memory = held + part.rows, memory + part.size
    yield range(start, len(file.ranges)), held * size // rows


Fault = tuple[str, ...]
"""Of the store, for the driver: family, code, what, where, remedy; empty: none."""


def read_part(storage: Storage, dialect: Dialect, part: Split) -> FileRows | Unreadable:
    """Rows of a part; a file that its dialect translates is translated again."""
    if not part.file.translated or part.file.table is not None:
        return read_file(storage, part.file, part.ranges)
    again = dialect.probe(storage, part.file.file)
    if again.signature != part.file.signature:
        return Unreadable(part.file.file, FILE_VANISHED, "the file was rewritten since it was probed")
    return read_file(storage, again)


CHANGES, REPLICA, ERRORS = "changes", "replica", "errors"
_FORM = 6
"""Of reports: those of another one are not read."""


@dataclass(frozen=True, kw_only=True)
class PartReport:
    """What became of a part.

    Attributes:
        path: ledger path of its file.
        figures: null where the part can't be read: `code` and `reason` say why.
        distinct: see `figures.distinct`, of its good rows; zeros: unknown.
        files: table to its data files, as a commit names them.
        error: a fault of the store, which stops the batch: family, code, what, where, remedy.
        suspects: see `stale_rows.suspects`, as an Arrow stream in base 64; empty: none.
    """

    path: str
    figures: Figures | None = None
    distinct: tuple[int, int] = (0, 0)
    files: Mapping[str, list[Action]] = field(default_factory=dict)
    code: str = ""
    reason: str = ""
    error: Fault = ()
    suspects: str = ""


@dataclass(frozen=True, kw_only=True)
class WritePart:
    """Decodes a part and writes its data files.

    Attributes:
        dialect: translates files again that it translates.
        targets: where rows go; of the replica only for a first load.
        reports: folder of the reports.
        row: what decides how rows are decoded, as text: a part of another row is not taken for this one.
    """

    decoder: Decoder
    dialect: Dialect
    targets: Mapping[str, Target]
    reports: str
    row: str
    now: int

    def __call__(self, storage: Storage, part: Split) -> str:
        report = self._report(storage, part)
        text = json.dumps(plain(report))  # mappings have an order
        if report.figures is not None:
            storage.write(self.report_of(part), text.encode())
        return text

    def file_of(self, part: Split) -> str:
        return part.file.file.path

    def report_of(self, part: Split) -> str:
        """Path of a part's report."""
        file, ranges = part.file.file, part.ranges
        ends = None if ranges is None else [ranges.start, ranges.stop]
        known = json.dumps(
            [_FORM, self.row, file.path, file.etag, file.fingerprint, file.generation, part.ordinal, ends]
        )
        return join(self.reports, f"{hashlib.blake2b(known.encode(), digest_size=16).hexdigest()}.json")

    def _report(self, storage: Storage, part: Split) -> PartReport:
        path = part.file.file.path
        try:
            with reading(part.file.file):
                rows = read_part(storage, self.dialect, part)
                if isinstance(rows, Unreadable):
                    return PartReport(path=path, code=rows.code, reason=rows.reason)
                raw = grouped([part.file], {path: rows}, {path: part.ordinal})
                group, figures = self.decoder.part(part.group, raw)
        except MemoryError as error:
            return PartReport(path=path, error=fault_of(out_of_memory(path, error)))
        except QuarantinableError as error:
            return PartReport(path=path, code=error.code, reason=error.what)
        except GddlError as error:
            return PartReport(path=path, error=fault_of(error))
        try:
            counts = distinct(group.good, self.decoder.table_schema)
            bad = suspects([group], self.decoder.table_schema)
            text = "" if bad is None else b64encode(stream_of(bad)).decode()
            files = self._write(storage, group)
            return PartReport(path=path, figures=figures, distinct=counts, files=files, suspects=text)
        except GddlError as error:
            return PartReport(path=path, error=fault_of(error))

    def _write(self, storage: Storage, group: DecodedGroup) -> dict[str, list[Action]]:
        good = group.good
        schema = self.decoder.table_schema
        rows = {CHANGES: told(good, schema), REPLICA: undeleted(good) if schema.spec.delete == "soft" else good}
        if group.bad:
            rows[ERRORS] = quarantine.of_rows(group, self.decoder.stamp)
        changes, replica = self.targets[CHANGES], self.targets.get(REPLICA)
        made: dict[str, list[Action]] = {}
        if good.num_rows and replica is not None and replica.can_copy(changes, good):
            mine, copied = replica.write_for_both(storage, good, changes, self.now)
            made = {REPLICA: [mine], CHANGES: [copied]}
        left = {name: to for name, to in self.targets.items() if name in rows and name not in made}
        return {**made, **{name: to.write(storage, rows[name], self.now) for name, to in left.items()}}


@dataclass(frozen=True, kw_only=True)
class WrittenParts:
    """A batch whose parts are written.

    Attributes:
        reports: folder of the parts' reports.
        targets: where the rows went.
        files: table to its data files, as commits name them.
        suspects: see `stale_rows.suspects`.
    """

    storage: Storage
    batch: DecodedBatch
    reports: str
    targets: Mapping[str, Target]
    files: Mapping[str, Sequence[Action]]
    suspects: pa.Table | None = None

    def paths(self, table: str) -> list[str]:
        """Paths of the files written for a table."""
        return [file_path(self.targets[table].path, action) for action in self.files[table]]

    def discard(self) -> None:
        """Remove what was written, and the reports."""
        self.storage.delete(*(path for table in self.files for path in self.paths(table)))
        self.forget()

    def forget(self) -> None:
        """Remove the reports: a run that is killed before its last commit decodes the files again for their figures."""
        self.storage.delete(*(item.path for item in self.storage.list(self.reports)))

    def remember(self, step: str, facts: object) -> None:
        """Keep what is known of a step beside the reports, for a run that finds it committed."""
        self.storage.write(join(self.reports, step), to_json(facts).encode())

    def remembered(self, step: str, kind: type[Facts]) -> Facts | None:
        data = read_if_there(self.storage, join(self.reports, step))
        return None if data is None else from_json(kind, data.decode())


@dataclass(frozen=True, kw_only=True)
class PartsReader:
    """Decodes and writes the parts of a batch's files.

    Attributes:
        targets_of: where the rows of a batch of a schema go, by table.
    """

    context: TableContext
    plan: BatchPlan
    state: TableState
    place: Place
    targets_of: Callable[[TableSchema], Mapping[str, Target]]
    bounds: PartBounds = field(default_factory=PartBounds)

    @property
    def _reports(self) -> str:
        return join(self.context.layout.state, "parts", f"{self.plan.batch_id}-{version_of(self.plan)}")

    def are_begun(self) -> bool:
        """Whether an earlier attempt has written parts."""
        return any(True for _ in self.context.storage.list(self._reports))

    def read(self) -> tuple[WrittenParts | None, tuple[Unreadable, ...]]:
        """The parts of readable files, written, and unreadable files; None when no file is readable."""
        context = self.context
        files, unreadable = probe_all(context.storage, self.plan.files, context.dialect, _lean)
        files, keyless = with_keys(files, context.spec, is_new=self.state.keys is None)
        unreadable = (*unreadable, *keyless)
        while files and not (self.state.keys is None and not begin_a_table(files)):
            written_parts, damaged = self._written(files)
            unreadable = (*unreadable, *damaged)
            if written_parts is not None:
                return written_parts, unreadable
            bad = {u.file.path for u in damaged}
            files = tuple(f for f in files if f.file.path not in bad)
        return None, (*unreadable, *that_wait(files))

    def _written(self, files: Sequence[Probed]) -> tuple[WrittenParts | None, tuple[Unreadable, ...]]:
        """The parts, or files that turned out to be unreadable."""
        alike, context = groups(files), self.context
        decoding = Decoding.planned(context, self.plan, self.state, [self._landed(group) for group in alike], files)
        work = self._work(decoding)
        ordinals = {file.path: number for number, file in enumerate(self.plan.files)}
        parts = splits(alike, ordinals, self.place.slots, self.bounds)
        reports = self._reported(work, parts)
        planned = {file.path: file for file in self.plan.files}
        damaged = {r.path: Unreadable(planned[r.path], r.code, r.reason) for r in reports if r.figures is None}
        if damaged:
            return None, tuple(damaged.values())
        schema = decoding.schema.table_schema
        whole = combined([figures for _, figures in _measured(reports)], schema)
        written_parts = WrittenParts(
            storage=context.storage, batch=decoding.batch(whole, self._distinct(reports, work, schema), alike),
            reports=self._reports, targets=work.targets,
            files={name: [action for r in reports for action in r.files.get(name, [])] for name in work.targets},
            suspects=_suspects(reports),
        )  # fmt: skip
        return written_parts, ()

    def _landed(self, group: Sequence[Probed]) -> FileGroup:
        return landed(self.context, group[0], lambda op: are_all_deletes(self.context, group, op))

    def _work(self, decoding: Decoding) -> WritePart:
        schema = decoding.schema.table_schema
        raw = [(group.columns, group.stated, group.schema_id) for group in decoding.decoder.groups]
        kinds = [(column.name, str(column.type)) for column in (*schema.data, *schema.before)]
        erased = sorted(decoding.decoder.erased.hashes)
        row = json.dumps([to_json(schema.spec), raw, kinds, schema.sequence_type, erased])
        return WritePart(
            decoder=decoding.decoder.to_send(), dialect=self.context.dialect, targets=self.targets_of(schema),
            reports=self._reports, row=row, now=version_of(self.plan) // 1000,
        )  # fmt: skip

    def _reported(self, work: WritePart, parts: Sequence[Split]) -> list[PartReport]:
        """Reports of all parts; those that an earlier attempt has written are not written again.

        Raises:
            GddlError: a fault of the store.
        """
        storage = self.context.storage
        there = {item.path for item in storage.list(self._reports)}
        reports, remaining = list[PartReport](), list[Split]()
        for part in parts:
            path = work.report_of(part)
            report = from_json(PartReport, storage.read(path).decode()) if path in there else None
            if report is not None and self._is_there(work, report):
                reports.append(report)
            else:
                remaining.append(part)
        reports += [from_json(PartReport, text) for text in self.place.run(work, remaining)]
        for report in reports:
            raise_fault(report.error)
        return reports

    def _is_there(self, work: WritePart, report: PartReport) -> bool:
        """Whether the files of an earlier attempt are still there: maintenance removes what no commit names."""
        paths = (file_path(work.targets[name].path, action) for name, files in report.files.items() for action in files)
        return all(self.context.storage.stat(path) is not None for path in paths)

    def _distinct(self, reports: Sequence[PartReport], work: WritePart, schema: TableSchema) -> tuple[int, int]:
        """See `figures.distinct`; those of parts add up where their ranges don't meet, else changes are not counted."""
        loads = [report for report, figures in _measured(reports) if figures.loads]
        changes = [(r, f) for r, f in _measured(reports) if not f.loads and f.good]
        keys = self._keys(loads, work, schema)
        if (loads and not keys) or not schema.keys or not all(r.distinct[0] for r, _ in changes):
            return 0, 0
        if not changes:
            return keys, keys
        return (keys + sum(r.distinct[0] for r, _ in changes), 0) if _are_apart([f for _, f in changes]) else (0, 0)

    def _keys(self, loads: Sequence[PartReport], work: WritePart, schema: TableSchema) -> int:
        """Distinct keys of full-load rows; 0 where unknown, or there are none.

        Of parts whose ranges don't meet they add up; else the key columns of the written files are read.
        """
        if not schema.keys or not all(r.distinct[1] for r in loads):
            return 0
        ends = [figures.key_range for _, figures in _measured(loads) if figures.key_range is not None]
        apart = len(ends) == len(loads) and len(schema.keys) == 1
        if apart and all(first[1] < second[0] for first, second in pairwise(sorted(ends))):
            return sum(r.distinct[1] for r in loads)
        target = work.targets[CHANGES]
        files = [file_path(target.path, action) for r in loads for action in r.files.get(CHANGES, [])]
        return self.place.distinct(files, schema.keys) if files else 0


def _suspects(reports: Sequence[PartReport]) -> pa.Table | None:
    tables = [stream_rows(b64decode(report.suspects)) for report in reports if report.suspects]
    return pa.concat_tables(tables) if tables else None


def _lean(probed: Probed) -> Probed:
    """Drop rows that the dialect has translated from memory; tasks translate them again."""
    return replace(probed, table=None, malformed=None)


def _measured(reports: Sequence[PartReport]) -> Iterator[tuple[PartReport, Figures]]:
    """Parts that could be read."""
    return ((report, report.figures) for report in reports if report.figures is not None)


def _are_apart(parts: Sequence[Figures]) -> bool:
    """Whether no change of a part has the sequence of one of another part."""
    files = [[file for file in part.files.values() if file.rows > file.quarantined] for part in parts]
    if any(file.min_sequence is None or file.max_sequence is None for part in files for file in part):
        return False
    lows = [min(sort_key(str(file.min_sequence)) for file in part) for part in files]
    highs = [max(sort_key(str(file.max_sequence)) for file in part) for part in files]
    return all(first[1] < second[0] for first, second in pairwise(sorted(zip(lows, highs, strict=True))))


def file_path(table: str, action: Action) -> str:
    """Path of a file that an action of the log adds."""
    (fields,) = action.values()
    return join(table, unquote(fields["path"]))


def fault_of(error: GddlError) -> Fault:
    family = "retriable" if isinstance(error, RetriableError) else "fatal"
    return (family, error.code, error.what, error.where, error.remedy)


def raise_fault(fault: Fault) -> None:
    """Raise a fault of the store that a task has reported.

    Raises:
        GddlError: the store's.
    """
    if fault:
        family, code, what, where, remedy = fault
        kind = RetriableError if family == "retriable" else FatalError
        raise kind(codes.of(code), what, where=where, remedy=remedy)


def out_of_memory(path: str, error: MemoryError) -> FatalError:
    what = f"a Spark task has not enough memory for the file: {error}"[:500]
    return FatalError(OUT_OF_MEMORY, what, where=path, remedy=LARGER_TIER)
