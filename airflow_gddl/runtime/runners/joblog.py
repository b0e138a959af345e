"""The log of an embedded job: stored in the lake, on S3 once the job has ended."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from airflow_gddl.contract.layout import join, log_folder
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import open_store

KEPT_DAYS = 30
"""Retention of a log in days."""
KEPT_AT_LEAST, KEPT_AT_MOST = 10, 200
"""Minimum and maximum number of logs kept for a group, regardless of their age."""
_TAIL_LINES = 10
_LOG = logging.getLogger(__name__)


def open_log(spec: JobSpec) -> JobLog:
    """In the lake's folder of the job's group; for a lake on S3 in a new folder of the machine's temporary one.

    Raises:
        OSError: it can't be written.
    """
    if is_s3(spec.roots.lake):
        return JobLog(Path(tempfile.mkdtemp(prefix="gddl-logs-")), spec.run_id)
    folder = Path(log_folder(spec.roots.lake, spec.log_group))
    folder.mkdir(parents=True, exist_ok=True)
    return JobLog(folder, spec.run_id)


def keep(log: Path, spec: JobSpec, environ: Mapping[str, str]) -> str:
    """Location of a finished log: below `<lake>/_gddl/logs` of a lake on S3, else where it was written.

    A log that can't be uploaded stays on this machine; the job's outcome is unaffected.
    """
    if not is_s3(spec.roots.lake):
        return str(log)
    place = log_folder(spec.roots.lake, spec.log_group)
    try:
        _put(place, log, environ)
    except Exception as error:  # noqa: BLE001 - an error of the store must not change the job's outcome
        _LOG.warning("the job's log could not be uploaded and stays at %s: %s", log, str(error).partition("\n")[0])
        return str(log)
    shutil.rmtree(log.parent, ignore_errors=True)
    return join(place, log.name)


def expired(logs: Mapping[str, float], now: float) -> list[str]:
    """Names of expired logs.

    Args:
        logs: of one group: when each was last modified, by name. Run ids begin with their time, so names sort by it.
        now: seconds since the epoch, as those.
    """
    newest_first = sorted((name for name in logs if name.endswith(".log")), reverse=True)
    old = now - KEPT_DAYS * 86_400
    rest = newest_first[KEPT_AT_LEAST:KEPT_AT_MOST]
    return [name for name in rest if logs[name] < old] + newest_first[KEPT_AT_MOST:]


def _put(folder: str, log: Path, environ: Mapping[str, str]) -> None:
    import obstore  # noqa: PLC0415 - a local lake needs no client

    from airflow_gddl.stores.clients import client  # noqa: PLC0415 - as above

    bucket, key = split(join(folder, log.name))
    obstore.put(client(bucket, environ, quick=True), key, log)  # in parts: it may be large
    store = open_store(environ)
    store.delete(*expired({found.path: found.modified for found in store.list(folder)}, time.time()))


class JobLog:
    """Writes lines and keeps the last few in memory. Removes expired logs of its folder."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = folder / f"{run_id}.log"
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._file: IO[str] = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        with contextlib.suppress(OSError):
            for old in expired({path.name: path.stat().st_mtime for path in folder.glob("*.log")}, time.time()):
                (folder / old).unlink()

    def write(self, line: str) -> None:
        if not self.path.exists():
            # A continuous job may outlive its log file; then the file is created again.
            self._file.close()
            self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        self._file.write(line + "\n")
        self._file.flush()
        if line.strip():
            self._tail.append(line.rstrip())

    @property
    def tail(self) -> str:
        """The last lines that aren't blank, at most ten, in one text."""
        return "\n".join(self._tail)

    def close(self) -> None:
        self._file.close()
