"""`gddl load`: the full load of a table read from its source database, in the files that AWS DMS would write.

`LOAD00000000.parquet`, which has no rows, is written first: what the CDC service writes after it belongs to this load.
Then each range of keys becomes one file, by a short query of its own. Changes during the load are in the CDC service's
files, which come after the load in order, so it must have captured the table since before the load
(docs/initial-load.md, docs/decisions/sources-and-security.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.actions import LoadFromSource
from airflow_gddl.contract.codes import INITIAL_LOAD_REFUSED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.load_progress import (
    FOLDER,
    LoadedRange,
    LoadProgress,
    load_file,
    number_of_log,
    read_progress,
    write_progress,
)
from spark_jobs.plan.applied_settings import columns_of_schemas
from spark_jobs.plan.loaded_transactions import LoadedTransactions
from spark_jobs.plan.table_schema import found_columns, protected_missing
from spark_jobs.rooms.actions.source_rows import SourceRows
from spark_jobs.rooms.actions.source_values import ParquetContent
from spark_jobs.rooms.sources import reader_of
from spark_jobs.rules.batch_schema import missing_of

_AFTER_DIGITS = ":"
"""Load files sort after it, change files and folders of dates before it."""
_MARK = b"gddl_load"
"""Key of the metadata of a file: the load and the number of the file in it."""


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Write the files of a full load; the next run takes them. A load that was interrupted is resumed.

    Raises:
        FatalError: `INITIAL_LOAD_REFUSED`; as `url_of` and `opened`.
        RetriableError: `TABLE_BUSY`: another process loads the table; `SOURCE_UNREACHABLE`, `JOB_CANCELLED`.
    """
    _require_possible(run)
    runtime, folder = run.runtime, join(run.layout.state, FOLDER)
    with Claim.acquire(runtime.storage, folder, run.job.run_id, runtime.clock, run.job.options.wait_seconds) as claim:
        progress = read_progress(runtime.storage, run.layout.state)
        resumed = progress is not None and progress.ended is None
        if not resumed:
            _require_wanted(run, progress)
        log = reader_of(run.spec).open_log(run)  # before a row is read: what is committed meanwhile is in it
        resumed = resumed and progress is not None and progress.log == log
        source = SourceRows.of(run)
        _require_protected(run, source)
        totals.warn(source.warnings())
        done = _Load(run, source, claim, progress if resumed else None, progress, log).carry_out()
    rows = [one.rows or 0 for one in done.ranges]
    details = {
        "rows": sum(rows), "files": len(rows), "resumed": resumed, "began": done.began, "position": done.position,
        "keys": list(done.keys),
    }  # fmt: skip
    return run.answer(totals, details)


def _require_possible(run: TableRun) -> None:
    """Refuse tables whose files would not be understood, or not be the whole of the table."""
    spec, what = run.spec, ""
    if not DIALECTS.get(spec.dialect).takes_source_rows:
        what = f"its dialect {spec.dialect} takes no load from the source"
        remedy = "let the CDC service take a snapshot"
    elif spec.shards:
        what, remedy = "the table has several sources", "let the CDC service load each of them"
    elif not run.source_connection:
        what, remedy = "no connection to the source is named", "set connection in the metadata row's source"
    if what:
        raise FatalError(INITIAL_LOAD_REFUSED, f"{spec.table}: {what}", where=spec.table, remedy=remedy)


def _require_wanted(run: TableRun, former: LoadProgress | None) -> None:
    """Refuse a second load that was not confirmed, and one beside load files of another writer."""
    spec, storage = run.spec, run.runtime.storage
    mine = {load_file(number) for number in range(len(former.ranges) + 1)} if former else set()
    names = (item.path.rpartition("/")[2] for item in storage.list(run.layout.landing, _AFTER_DIGITS))
    foreign = sorted(n for n in names if n not in mine and (known := run.dialect.classify(n)) and known[0] == "load")
    if foreign:
        what = f"{spec.table}: the landing folder has {len(foreign)} load files of another writer, e.g. {foreign[0]}"
        remedy = "remove them there if the source is to be loaded again, or run `gddl run` to load them"
        raise FatalError(INITIAL_LOAD_REFUSED, what, where=run.layout.landing, remedy=remedy)
    again = isinstance(asked := run.job.options.action, LoadFromSource) and asked.again
    if run.ledger().state.keys is not None and not again:
        what = f"{spec.table} is loaded already; rows that the source lacks would be removed"
        raise FatalError(INITIAL_LOAD_REFUSED, what, where=spec.table, remedy="confirm it by --again")


def _require_protected(run: TableRun, source: SourceRows) -> None:
    """Require that the source has each column that `mask` and `exclude_columns` name.

    Raises:
        FatalError: `PROTECTED_COLUMN_MISSING`, for the files would have the column that a misspelt name means.
    """
    spec, state = run.spec, run.ledger().state
    names = [*(column.name for column in source.columns), *source.left_out]
    renamed = [spec.rename[name] for name in names if name in spec.rename]
    found = found_columns([[*names, *renamed]], spec, found=state.found)
    if missing := missing_of(run.dialect, found, columns_of_schemas(state.schemas)):
        raise protected_missing(spec.table, missing, names)


@dataclass
class _Load:
    """One load, from the start or resumed.

    Attributes:
        former: the load before it; None: there was none.
        log: see `open_log`.
        _began_at: seconds, when this process began; `_rows_before`: rows that were written before.
    """

    run: TableRun
    source: SourceRows
    claim: Claim
    resumed: LoadProgress | None
    former: LoadProgress | None
    log: str
    _progress: LoadProgress = field(init=False)
    _began_at: float = field(default_factory=time.monotonic)
    _rows_before: int = 0
    _failed: threading.Event = field(default_factory=threading.Event)

    def carry_out(self) -> LoadProgress:
        if self.resumed is not None and self.resumed.keys == self.source.keys:
            self._progress, self._rows_before = self.resumed, self.resumed.rows
        else:
            self._begin()
        self._write(0, lambda: iter(()))
        with ThreadPoolExecutor(self.source.settings.parallel, thread_name_prefix="load") as pool:
            self._write_files(pool)
        self._remove_older()
        self._save_progress(ended=iso(self.run.runtime.clock()), until=self.source.position_now())
        return self._progress

    def _begin(self) -> None:
        former = self.former
        before = max(former.before, len(former.ranges)) if former else 0
        self._progress = LoadProgress(
            began=iso(self.run.runtime.clock()), keys=self.source.keys, before=before, position=self.source.position,
            log=self.log, left_out=found_columns([self.source.left_out], self.run.spec),
        )  # fmt: skip
        self._save_progress()
        is_new = reader_of(self.run.spec).follow(self.run, self.log) or self.run.ledger().state.keys is None
        if is_new and self.log and not self.source.at_once:
            self._save_transactions(self.source.seen)

    def _write_files(self, pool: ThreadPoolExecutor) -> None:
        """Write the files that are missing, while the ranges after them are found."""
        pending: dict[Future[int], int] = {}
        try:
            for number in self._missing_files():
                while len(pending) >= 2 * self.source.settings.parallel:
                    self._wait_for_file(pending)
                pending[pool.submit(self._load_range, number, self._progress.ranges[number - 1])] = number
            while pending:
                self._wait_for_file(pending)
        except BaseException:
            self._failed.set()  # else the pool would wait until the others have read their ranges
            for future in pending:
                future.cancel()
            raise

    def _missing_files(self) -> Iterator[int]:
        """Numbers of files to write; ranges are found as they are asked for."""
        number = 0
        while number < len(self._progress.ranges) or not self._progress.is_divided:
            if number == len(self._progress.ranges):
                self._find_range()
            number += 1
            if self._progress.ranges[number - 1].rows is None:
                yield number

    def _find_range(self) -> None:
        """Find the next range."""
        ranges = self._progress.ranges
        after = ranges[-1].to if ranges else None
        to = self.source.boundary(after, self.source.settings.chunk_rows) if self._progress.keys else None
        self._save_progress(ranges=(*ranges, LoadedRange(after=after, to=to)), is_divided=to is None)

    def _wait_for_file(self, pending: dict[Future[int], int]) -> None:
        """Wait for a file, and note that it is written."""
        done, _ = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
        self.run.go_on()
        for future in done:
            number, rows = pending.pop(future), future.result()
            ranges = list(self._progress.ranges)
            ranges[number - 1] = replace(ranges[number - 1], rows=rows)
            self._save_progress(ranges=tuple(ranges))
            self.run.report(f"loaded from the source{self._outlook()}", number, self._progress.rows)

    def _outlook(self) -> str:
        """How much is loaded, and how long the rest takes at this speed, by the database's own estimate of its rows."""
        done, every = self._progress.rows, self.source.rows_about
        if every is None or done >= every or done <= self._rows_before:
            return ""
        remaining = (time.monotonic() - self._began_at) / (done - self._rows_before) * (every - done)
        left = f", {remaining / 60:.0f} min left" if remaining >= 60 else ""
        return f", about {100 * done // every} %{left}"

    def _load_range(self, number: int, within: LoadedRange) -> int:
        return self._write(number, lambda: self.source.rows(within.after, within.to, seen=self._save_transactions))

    def _save_transactions(self, transactions: LoadedTransactions | None) -> None:
        """Before the rows are written, so that no file is there without it."""
        if transactions is not None:
            self._save_progress(seen=replace(transactions, log=number_of_log(self.log)))

    def _write(self, number: int, rows: Callable[[], Iterator[pa.RecordBatch]]) -> int:
        """Write a file unless this load has written it; returns its rows.

        A file that is there is not written again: with other content it would open a generation.
        """
        path = join(self.run.layout.landing, load_file(number))
        mark = f"{self._progress.began} {number}".encode()
        storage = self.run.runtime.storage
        if (there := _rows_of(storage, path, mark)) is not None:
            return there
        content = ParquetContent(self.source.schema.with_metadata({_MARK: mark}))
        for batch in rows():
            self.run.go_on()
            if self._failed.is_set():
                raise CancelledError
            content.add(batch)
        self.claim.check()
        storage.write(path, content.finished())
        return content.rows

    def _remove_older(self) -> None:
        """Remove files of the load before, which was divided into more ranges."""
        names = [load_file(n) for n in range(len(self._progress.ranges) + 1, self._progress.before + 1)]
        if names:
            self.run.runtime.storage.delete(*(join(self.run.layout.landing, name) for name in names))

    def _save_progress(self, **changes: Any) -> None:
        self.claim.check()
        self._progress = replace(self._progress, **changes)
        write_progress(self.run.runtime.storage, self.run.layout.state, self._progress)


def _rows_of(storage: Storage, path: str, mark: bytes) -> int | None:
    """Rows of a file with this mark; None: there is none."""
    if storage.stat(path) is None:
        return None
    with storage.open_input(path) as stream:
        try:
            footer = pq.read_metadata(stream)
        except pa.ArrowException:
            return None
        return int(footer.num_rows) if (footer.metadata or {}).get(_MARK) == mark else None
