"""`gddl adopt --beside`: ours keeps a copy of the table, while the other job goes on with its own.

checks ─► `adoption.json` ─► copy of the data files ─► its first commit ─► `beside.json` ─► the takeover of the copy.
The ledger is where it always is. From `beside.json` on, `Layout.beside` is where the table's runs find the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from uuid import uuid4

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import Layout, beside_folder, join
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.adoption import end_adoption, in_order_of_removal, is_beside, read_adoption
from spark_jobs.tables.deletion_vectors import path_of
from spark_jobs.tables.delta_log import Action, commit, info
from spark_jobs.tables.replayed_log import Add, DamagedLogError, ReplayedLog, replayed

_GONE_CODE = "ADOPT_FILES_GONE"
_AT_ONCE = 8


def in_place(run: TableRun) -> TableRun:
    """The run of the table as the other job keeps it."""
    return replace(run, layout_override=Layout.of(run.job.roots, run.spec))


def beside(run: TableRun) -> TableRun:
    """The run of the table beside."""
    layout = Layout.of(run.job.roots, run.spec)
    return replace(run, layout_override=layout.beside(run.job.roots, run.spec))


def is_anything_beside(run: TableRun) -> bool:
    """Whether there is a table beside, or a part of one.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    storage, state = run.runtime.storage, Layout.of(run.job.roots, run.spec).state
    begun = read_adoption(storage, state)
    if (begun is not None and begun.beside) or is_beside([item.name for item in storage.list(state)]):
        return True
    return next(iter(storage.list(beside_folder(run.job.roots, run.spec))), None) is not None


def remove_beside(run: TableRun) -> None:
    """Remove the table beside with its ledger, and what an interruption has left of one.

    Until `beside.json` is gone, runs find a table without a ledger; afterwards the other job's table.
    """
    storage, usual = run.runtime.storage, Layout.of(run.job.roots, run.spec)
    names = [item.name for item in storage.list(usual.state)]
    if is_beside(names):
        *ledger, marker = in_order_of_removal(names)
        for name in ledger:
            storage.delete(join(usual.state, name))
        remove_files(run, usual.errors)
        storage.delete(join(usual.state, marker))
    remove_files(run, beside_folder(run.job.roots, run.spec))
    end_adoption(storage, usual.state)


def remove_files(run: TableRun, folder: str) -> None:
    """Remove all files below a folder."""
    storage = run.runtime.storage
    storage.delete(*(file.path for file in list(storage.list(folder))))


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A table at a version, to be copied.

    Attributes:
        files: paths below the table's folder: data files, and files of their deletion vectors.
        bytes: of the data files.
    """

    table: str
    log: ReplayedLog
    files: tuple[str, ...]
    bytes: int

    @classmethod
    def of(cls, run: TableRun, version: int) -> Copy:
        """
        Args:
            run: see `in_place`.

        Raises:
            RetriableError: `ADOPT_FILES_GONE`: the log does not reach back to the version any more.
        """
        table = run.layout.replica
        try:
            log = replayed(run.runtime.storage, table, version)
        except DamagedLogError as error:
            raise gone(run, f"version {version}: {error}") from error
        if log is None or log.version != version:
            raise gone(run, f"its log has no version {version} any more")
        vectors = {path for add in log.files.values() for path in _vector_of(add)}
        size = sum(int(add["size"]) for add in log.files.values())
        return cls(table=table, log=log, files=(*log.files, *sorted(vectors)), bytes=size)

    def make(self, run: TableRun, target: str) -> None:
        """Copy the files into an empty folder, and make them a table by one commit.

        Raises:
            RetriableError: `ADOPT_FILES_GONE`: the other job has removed some of them.
        """
        storage = run.runtime.storage

        def copy(name: str) -> None:
            run.go_on()
            storage.copy(join(self.table, name), join(target, name))

        try:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="beside") as pool:
                list(pool.map(copy, self.files))
        except FileNotFoundError as error:
            raise gone(run, f"its version {self.log.version} has lost a file: {error}") from error
        commit(storage, target, 0, self._actions(int(run.runtime.clock().timestamp() * 1000)))

    def _actions(self, now: int) -> Iterator[Action]:
        """The commit has no clustering columns: the copy is not kept for long."""
        yield info(now, "CLONE", "", {}, source=f"{self.table}@{self.log.version}")
        yield {"protocol": self.log.protocol}
        yield {"metaData": {**self.log.metadata, "id": str(uuid4())}}
        yield from ({"add": {**add, "dataChange": True}} for add in self.log.files.values())


def _vector_of(add: Add) -> Iterator[str]:
    """Path of the file that has the deletion vector of a data file, below the table's folder."""
    vector = add.get("deletionVector")
    if vector is not None and vector["storageType"] == "u":
        yield path_of("", vector).lstrip("/")


def gone(run: TableRun, why: str) -> RetriableError:
    """`ADOPT_FILES_GONE`, of a file that the other job has removed."""
    what = f"{run.spec.table}: the other job's table changes faster than it is read: {why}"
    remedy = "run it again, which reads the newest version; keep VACUUM of the other job away meanwhile"
    return RetriableError(_GONE_CODE, what, where=run.layout.replica, remedy=remedy)
