"""Damage of Delta tables: files that their logs name and that are gone, cut or replaced, and logs that can't be read.

Found by listings, since no step reads all files of a table. What a repair makes again anyway is taken out of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.tables import delta_log
from spark_jobs.tables.deletion_vectors import path_of
from spark_jobs.tables.delta_log import OURS, Action
from spark_jobs.tables.replayed_log import (
    Add,
    DamagedLogError,
    ReplayedLog,
    drop_damaged_checkpoints,
    is_elsewhere,
    replayed,
)

_OPENED = 1000
_READ = 2**30
"""Files of a table, and their bytes, that are read after a failure that nothing else explains, and by a reload."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What is wrong with a table.

    Attributes:
        log: its newest version; None: it can't be read.
        files: paths in the log, without escapes, of data files whose rows can't be had.
        what: the first fault, with the path of the file.
    """

    path: str
    what: str
    log: ReplayedLog | None = None
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = len(self.files) - 1
        return self.what + (f" (and {more} more file{'' if more == 1 else 's'})" if more > 0 else "")


def damage_of(storage: Storage, path: str, *, known: int = -1, opens: bool = False) -> Damage | None:
    """What is wrong with a table; None: nothing that is looked for, or there is no table.

    A checkpoint that can't be read, and that the log's commits replace, is removed.

    Args:
        known: a version that the table had.
        opens: read files, too, up to `_OPENED` and `_READ`.
    """
    try:
        log = replayed(storage, path)
    except DamagedLogError as error:
        return None if isinstance(error.__cause__, OSError) else Damage(path=path, what=f"{path}: {error}")
    if log is None:
        return None
    drop_damaged_checkpoints(storage, path)
    faults = dict(_faults(storage, path, log, opens=opens))
    what = [_behind(path, log.version, known)] if log.version < known else []
    what += faults.values()
    return Damage(path=path, what=what[0], log=log, files=tuple(faults)) if what else None


def _behind(path: str, version: int, known: int) -> str:
    what = f"{path}: its log ends with version {version}, and the ledger knows {known}"
    return f"{what}: the newest files of the log are gone, or an older copy was restored"


def _faults(storage: Storage, table: str, log: ReplayedLog, *, opens: bool) -> Iterator[tuple[str, str]]:
    """Damaged files: path in the log, and what is wrong."""
    sizes, read = {item.path: item.size for item in storage.list(table)}, 0
    for number, (name, add) in enumerate(log.files.items()):
        if is_elsewhere(add["path"]):
            continue
        path, vector = join(table, name), _vector_of(table, add)
        if path not in sizes:
            yield name, f"{path} is gone"
        elif sizes[path] != add["size"]:
            yield name, f"{path} has {sizes[path]} bytes, and {add['size']} by the table's log"
        elif vector is not None and vector.startswith(table) and vector not in sizes:
            yield name, f"{vector}, the rows of {name} that are deleted, is gone"
        elif opens and number < _OPENED and (read := read + sizes[path]) <= _READ and (fault := _fault(storage, path)):
            yield name, f"{path} can't be read: {fault}"


def _vector_of(table: str, add: Add) -> str | None:
    vector = add.get("deletionVector")
    return None if vector is None or vector["storageType"] == "i" else path_of(table, vector)


def _fault(storage: Storage, path: str) -> str:
    """Why a file can't be read; empty: it can. A store that doesn't answer raises an error of ours."""
    try:
        with storage.open_input(path) as stream:
            file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            for group in range(file.num_row_groups):
                file.read_row_group(group)
    except (pa.ArrowException, ValueError, EOFError, OSError) as error:
        return str(error).partition("\n")[0]
    return ""


def mend(storage: Storage, found: Sequence[Damage], now: int) -> None:
    """Take damaged files out of the tables' logs; a log that can't be read is removed, and so there is no table.

    Args:
        now: milliseconds since 1970.
    """
    for damage in found:
        log = damage.log
        if log is None:
            folder = join(damage.path, "_delta_log")
            storage.delete(*(item.path for item in storage.list(folder)))
            continue
        removals: list[Action] = []
        for add in (log.files[name] for name in damage.files):
            partition, vector = tuple((add.get("partitionValues") or {}).items()), add.get("deletionVector")
            removals.append(
                delta_log.remove(add["path"], add["size"], partition, now=now, data_change=True, vector=vector)
            )
        done = delta_log.info(now, "REMOVE DAMAGED FILES", OURS, {})
        delta_log.commit(storage, damage.path, log.version + 1, delta_log.with_row_ids(log, [done, *removals]))
