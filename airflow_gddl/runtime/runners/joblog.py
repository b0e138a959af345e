"""The log of an embedded job: beside the lake's state, on S3 once the job has ended."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.spec import Roots
from airflow_gddl.stores.clients import client

if TYPE_CHECKING:
    from obstore.store import S3Store

KEPT_LOGS = 100
_TAIL_LINES = 10
_LOG = logging.getLogger(__name__)


def log_folder(roots: Roots) -> Path:
    """`<lake>/_gddl/logs` of a local lake, else a new folder in the machine's temporary one; created when absent."""
    if is_s3(roots.lake):
        return Path(tempfile.mkdtemp(prefix="gddl-logs-"))
    folder = Path(join(roots.lake, STATE, "logs"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def keep(log: Path, roots: Roots, environ: Mapping[str, str]) -> str:
    """Where a finished log is to be found: put below `<lake>/_gddl/logs` of a lake on S3, else where it was written.

    A log that can't be put there stays on this machine; the job's outcome matters more.
    """
    if not is_s3(roots.lake):
        return str(log)
    bucket, folder = split(join(roots.lake, STATE, "logs"))
    try:
        _put(client(bucket, environ), folder, log)
    except Exception as error:  # noqa: BLE001 - whatever the store raises, the job is done
        _LOG.warning("the job's log stays at %s: %s", log, str(error).partition("\n")[0])
        return str(log)
    shutil.rmtree(log.parent, ignore_errors=True)
    return join(roots.lake, STATE, "logs", log.name)


def _put(store: S3Store, folder: str, log: Path) -> None:
    import obstore  # noqa: PLC0415 - a local lake needs no client

    obstore.put(store, f"{folder}/{log.name}", log)
    found = sorted(meta["path"] for page in obstore.list(store, folder) for meta in page)
    if old := [path for path in found if path.endswith(".log")][:-KEPT_LOGS]:
        obstore.delete(store, old)


class JobLog:
    """Takes lines; remembers the last few. Run ids begin with their time: the oldest logs sort first and go first."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.path = folder / f"{run_id}.log"
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._file: IO[str] = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        for old in sorted(folder.glob("*.log"))[:-KEPT_LOGS]:
            with contextlib.suppress(OSError):
                old.unlink()

    def write(self, line: str) -> None:
        if not self.path.exists():
            # A job that goes on outlives its log, when a hundred others came after it: what it says now is looked for.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._file.close()
