"""Files of a Delta table as the project reads its log."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

from airflow_gddl.stores import Storage
from spark_jobs.tables.replayed_log import POINTER, Add, ReplayedLog, replayed


def log_of(path: str, version: int | None = None) -> ReplayedLog:
    """The log at a version; null: the newest."""
    with TemporaryDirectory() as folder:
        if version is not None:
            newer = partial(_newer, version=version)
            copytree(Path(path, "_delta_log"), Path(folder, "_delta_log"), ignore=newer)
        log = replayed(Storage(), path if version is None else folder)
    assert log is not None, path
    return log


def _newer(_: str, names: list[str], version: int) -> list[str]:
    """Of the files of a log those of later versions, and the pointer to the last checkpoint."""
    return [name for name in names if name == POINTER or (name[:20].isdecimal() and int(name[:20]) > version)]


def files_at(path: str, version: int) -> dict[str, Add]:
    """`add` actions by path."""
    return dict(log_of(path, version).files)
