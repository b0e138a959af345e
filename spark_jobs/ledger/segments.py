"""Snapshots of a ledger: the rows read at each run, and the archives that only full listings read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.ledger import documents as files
from spark_jobs.ledger.documents import Archive, LedgerSnapshot
from spark_jobs.plan.file_times import FileAging
from spark_jobs.plan.files import FileEntry

RECENT, ARCHIVE = "recent", "archive"
_LARGEST_MERGE = 100_000

Rows = dict[str, FileEntry]


@dataclass(frozen=True)
class Segments:
    """Reads and writes segments below `root`."""

    storage: Storage
    root: str

    def recent(self, snapshot: LedgerSnapshot) -> Rows:
        return {} if snapshot.recent is None else self._read(snapshot.recent)

    def archived(self, snapshot: LedgerSnapshot) -> Rows:
        """All archives; memory and time grow with every file the table ever had."""
        rows: Rows = {}
        for archive in snapshot.archives:
            rows.update(self._read(archive.name))
        return rows

    def compact(
        self, snapshot: LedgerSnapshot, number: int, rows: Rows, aging: FileAging, keep_since: str | None
    ) -> LedgerSnapshot:
        """Write `rows`, all of batches up to `number`, as the successor of `snapshot`.

        Args:
            rows: newest row per path of `snapshot.recent` and of later commits; may replace archived rows.
            aging: of the rule that the archives of `snapshot` were made by.
            keep_since: change files of an earlier time go to an archive; null: none does.
        """
        horizon = max(filter(None, (keep_since, snapshot.archived_before)), default=None)
        old = {path: row for path, row in rows.items() if aging.is_before(row, horizon)}
        recent = {path: row for path, row in rows.items() if path not in old}
        return LedgerSnapshot(
            number=number,
            recent=self._write(RECENT, number, recent) if recent else None,
            recent_rows=len(recent),
            archives=self._archive(snapshot.archives, number, old),
            archived_before=horizon if old else snapshot.archived_before,
            archived_by=aging.times.rule if old else snapshot.archived_by,
        )

    def _archive(self, archives: tuple[Archive, ...], number: int, rows: Rows) -> tuple[Archive, ...]:
        """Archives merge with younger ones about their size, so that there are few and rows are rarely rewritten."""
        if not rows:
            return archives
        kept = list(archives)
        while kept and kept[-1].rows <= 2 * len(rows) and kept[-1].rows + len(rows) <= _LARGEST_MERGE:
            rows = {**self._read(kept.pop().name), **rows}
        return (*kept, Archive(name=self._write(ARCHIVE, number, rows), rows=len(rows)))

    def _write(self, folder: str, number: int, rows: Mapping[str, FileEntry]) -> str:
        text = files.to_bytes(files.encode_files(rows.values()))
        name = files.segment_name(folder, number, text)
        self.storage.write(join(self.root, name), text)
        return name

    def _read(self, name: str) -> Rows:
        path = join(self.root, name)
        try:
            data = self.storage.read(path)
        except FileNotFoundError as error:
            # For a reader without the claim: two snapshots were made since it opened. Lost for good shows in the retry.
            what = "a segment of the ledger is missing: superseded or deleted"
            raise RetriableError("LEDGER_CONFLICT", what, where=path, remedy="open the ledger again") from error
        return {row.path: row for row in files.decode_segment(path, data)}


def names_of(snapshot: LedgerSnapshot) -> set[str]:
    """Segments that a snapshot needs."""
    recent = {snapshot.recent} if snapshot.recent is not None else set()
    return recent | {archive.name for archive in snapshot.archives}
