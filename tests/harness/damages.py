"""Damage of the Delta tables of a lake on disk: what a lifecycle rule, a full disk or a hand leaves of their files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.stores import Storage
from spark_jobs.tables.deletion_vectors import path_of
from spark_jobs.tables.replayed_log import replayed

TABLES = ("replica", "changes", "history", "errors", "tombstones")
Damaging = Callable[[Path], None]
"""Damages the table of this folder."""


def _data_files(table: Path) -> list[Path]:
    """Those of the newest version, oldest first."""
    log = replayed(Storage(), str(table))
    assert log is not None
    return [table / path for path in log.files]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _data_file_cut(table: Path) -> None:
    _cut(_data_files(table)[0])


def _data_file_gone(table: Path) -> None:
    _data_files(table)[-1].unlink()


def _data_file_of_another_table(table: Path) -> None:
    """Of the same columns, one row more."""
    file = _data_files(table)[0]
    rows = pq.ParquetFile(file).read()
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), file)


def _commits(table: Path) -> list[Path]:
    return sorted(path for path in (table / "_delta_log").iterdir() if re.fullmatch(r"\d{20}\.json", path.name))


def _checkpoints(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.checkpoint*.parquet"))


def _data_files_zeroed(table: Path) -> None:
    """As a machine leaves them that loses power: of their sizes."""
    for file in _data_files(table):
        file.write_bytes(bytes(file.stat().st_size))


def _pages_replaced(table: Path) -> None:
    """The footers are as they were."""
    for file in _data_files(table):
        content = bytearray(file.read_bytes())
        for at in range(4, len(content) // 3):
            content[at] ^= 0xFF
        file.write_bytes(content)


def _commit_gone(table: Path) -> None:
    _commits(table)[-2].unlink()


def _newest_commit_gone(table: Path) -> None:
    _commits(table)[-1].unlink()


def _commit_cut(table: Path) -> None:
    _cut(_commits(table)[-2])


def _newest_commit_empty(table: Path) -> None:
    _commits(table)[-1].write_bytes(b"")


def _checkpoint_cut(table: Path) -> None:
    _cut(_checkpoints(table)[-1])


def _checkpoint_gone(table: Path) -> None:
    _checkpoints(table)[-1].unlink()


def _checkpoint_cut_without_commits(table: Path) -> None:
    checkpoint = _checkpoints(table)[-1]
    for commit in _commits(table):
        if commit.name[:20] <= checkpoint.name[:20]:
            commit.unlink()
    _cut(checkpoint)


def _vector_gone(table: Path) -> None:
    log = replayed(Storage(), str(table))
    assert log is not None
    vectors = [vector for add in log.files.values() if (vector := add.get("deletionVector"))]
    Path(path_of(str(table), vectors[0])).unlink()


DAMAGES: dict[str, Damaging] = {
    "data_file_cut": _data_file_cut,
    "data_file_gone": _data_file_gone,
    "data_file_of_another_table": _data_file_of_another_table,
    "commit_gone": _commit_gone,
    "newest_commit_gone": _newest_commit_gone,
    "commit_cut": _commit_cut,
    "newest_commit_empty": _newest_commit_empty,
    "checkpoint_cut": _checkpoint_cut,
    "checkpoint_gone": _checkpoint_gone,
    "checkpoint_cut_without_commits": _checkpoint_cut_without_commits,
    "vector_gone": _vector_gone,
}
UNSEEN: dict[str, Damaging] = {"data_files_zeroed": _data_files_zeroed, "pages_replaced": _pages_replaced}
"""Damage that a listing doesn't show: what reads the files finds it."""
