"""Data of the page: the current metadata and the state of the lake."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.catalogs import CatalogSpec
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.metadata.topology.rows import TableRow
from airflow_gddl.runtime.snapshot import Directory, MetadataSnapshot
from airflow_gddl.runtime.state.board import BoardRow, standings
from airflow_gddl.runtime.state.judging import MOST_QUARANTINED
from airflow_gddl.runtime.state.reading import LakeState, StateReader, Trouble

PATIENCE = 3.0


@dataclass(frozen=True, kw_only=True)
class Board:
    """Every table as of `now`, seconds since the epoch. `roots` null: the metadata could never be read.

    Attributes:
        environ: environment for S3.
        problems: of the metadata that belong to no table, a line each.
    """

    standings: tuple[BoardRow, ...] = ()
    problems: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    roots: Roots | None = None
    now: float = 0.0
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def of(self, table: str) -> BoardRow | None:
        """Finds only tables of the metadata."""
        return next((one for one in self.standings if one.row.table == table), None)


@dataclass
class PageSource:
    """Serves a board that is a few seconds old at most; thread-safe.

    Attributes:
        snapshot: gives the metadata as it is now.
        environ_of: environment for S3 for the metadata's roots.
        quarantine_rate: see `judging.Knowledge`.
        clock: seconds since the epoch.
        patience: seconds for which a board is reused.
    """

    snapshot: Callable[[], MetadataSnapshot]
    environ_of: Callable[[Directory], Mapping[str, str]] = lambda _: os.environ
    quarantine_rate: Callable[[], float] = lambda: MOST_QUARANTINED
    clock: Callable[[], float] = time.time
    patience: float = PATIENCE
    _board: Board = field(default_factory=Board)
    _directory: tuple[object, Directory | None] = (None, None)
    _reader: StateReader | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def board(self) -> Board:
        """The newest board. While one thread reads a slow lake, the others get the previous one."""
        if not self._lock.acquire(blocking=self._board.roots is None):
            return self._board
        try:
            now = self.clock()
            if self._board.roots is None or not 0 <= now - self._board.now < self.patience:
                self._board = self._fresh(now)
            return self._board
        finally:
            self._lock.release()

    def settings(self, row: TableRow) -> tuple[TableSpec | None, CatalogSpec | None]:
        """The table's row in full, and the catalog that it names.

        Null: no pipeline loads it, or the metadata can't be read; it names none.
        """
        if row.dag_id is None or row.problems:
            return None, None
        try:
            document = self.snapshot().pipeline(row.dag_id)
        except (GddlError, OSError):
            return None, None
        if document is None:
            return None, None
        spec = next((spec for spec in document.specs if spec.table == row.table), None)
        return spec, None if spec is None else document.catalogs.get(spec.catalog or "")

    def _fresh(self, now: float) -> Board:
        directory, troubles = self._known()
        if directory is None:
            return Board(troubles=troubles, now=now)
        environ: Mapping[str, str] = os.environ
        try:
            reader = self._reader_of(directory)
            environ, known = reader.environ, reader.read_or_last()
        except GddlError as error:
            known = LakeState(troubles=(Trouble(what=f"the lake can't be read: {error}", since=None),))
        return Board(
            standings=tuple(standings(directory.rows, known, now, self.quarantine_rate())),
            problems=directory.problems,
            troubles=(*troubles, *known.troubles),
            roots=directory.roots,
            now=now,
            environ=environ,
        )

    def _reader_of(self, directory: Directory) -> StateReader:
        """
        Raises:
            GddlError: the S3 connection can't be read.
        """
        if self._reader is None or self._reader.lake != directory.roots.lake:
            self._reader = StateReader(directory.roots.lake, self.clock, environ=self.environ_of(directory))
        return self._reader

    def _known(self) -> tuple[Directory | None, tuple[Trouble, ...]]:
        try:
            serving = self.snapshot()
        except (GddlError, OSError) as error:
            return self._directory[1], (Trouble(what=f"the metadata can't be read: {error}", since=None),)
        if self._directory[0] != serving.generation or self._directory[1] is None:
            self._directory = (serving.generation, serving.directory())
        why = serving.state.why
        stale = f" The last good copy, of {serving.state.built_at}, is used." if serving.generation else ""
        return self._directory[1], (Trouble(what=f"{why}{stale}", since=None),) if why else ()
