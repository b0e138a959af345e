"""The newest load of a table from its source database: what is done and what is left (`gddl load`)."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.postgresql_log import place_in, position_of
from airflow_gddl.stores import Storage
from spark_jobs.ledger.commit_files import (
    read_small,
)
from spark_jobs.plan.loaded_transactions import LoadedTransactions

FOLDER = "initial-load"
"""In the table's state folder: claims of loads, and the document."""


_DOCUMENT = "progress.json"


@dataclass(frozen=True, kw_only=True)
class LoadedRange:
    """A range of keys, which is one file.

    Attributes:
        after, to: keys as `source_rows.key_text` writes them: exclusive and inclusive; None: open.
        rows: that the file has; None: it is not written yet.
    """

    after: str | None
    to: str | None
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class LoadProgress:
    """The newest load of a table from its source: what is done, and what is left.

    Attributes:
        began, ended: ISO 8601 UTC; None: it has not ended.
        keys: key columns of the source, by which its ranges are read; empty: the table is read as a whole.
        ranges: in order; the file of each has its number, from 1.
        is_divided: whether all ranges are known.
        before: files of the load before this one.
        position: of the source's log when the load began; empty where the database shows none.
        until: position of the source's log once all rows were read; empty: as `position`, or it has not ended.
        log: the log that jobs read, and the table in it; empty: they read none.
        seen: of a table that is read by one query, or that begins to follow a log; None: its rows are known by their
            keys, or not yet read.
        left_out: columns of the source that the row keeps out of the files, cleaned and in lower case.
    """

    began: str
    ended: str | None = None
    keys: tuple[str, ...] = ()
    ranges: tuple[LoadedRange, ...] = ()
    is_divided: bool = False
    before: int = 0
    position: str = ""
    until: str = ""
    log: str = ""
    seen: LoadedTransactions | None = None
    left_out: tuple[str, ...] = ()

    def has_written(self, name: str, modified: str) -> bool:
        """Whether a file is this load's, whole as it was written.

        Args:
            modified: ISO 8601 UTC; a file that was written again since is another writer's.
        """
        is_own = name in map(load_file, range(len(self.ranges) + 1))
        return is_own and self.began <= modified and (self.ended is None or modified <= self.ended)

    @property
    def rows(self) -> int:
        return sum(one.rows or 0 for one in self.ranges)

    @property
    def place(self) -> str:
        """Where PostgreSQL's log was once all rows were read, as a place of `consistent_cut`; empty: not noted."""
        return place_in(number_of_log(self.log), position_of(self.until)) if "/" in self.until else ""


def number_of_log(log: str) -> int:
    """How often the log had been opened anew before, of `LoadProgress.log`."""
    return int(log.partition(" ")[0] or 0)


def read_progress(storage: Storage, state: str) -> LoadProgress | None:
    """The newest load of the table whose state folder is `state`; None: it had none.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    return read_small(storage, join(state, FOLDER, _DOCUMENT), LoadProgress, "delete it, and load the table again")


def write_progress(storage: Storage, state: str, progress: LoadProgress) -> None:
    storage.write(join(state, FOLDER, _DOCUMENT), codec.to_json(progress).encode())


def load_file(number: int) -> str:
    """Name of the file of a range; 0: of none, which has the columns."""
    return f"LOAD{number:08X}.parquet"
