"""The log of an embedded job: beside the lake's state when that is a local folder."""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.spec import Roots

KEPT_LOGS = 100
_TAIL_LINES = 10


def log_folder(roots: Roots) -> Path:
    """`<lake>/_gddl/logs` of a local lake, else a folder in the machine's temporary one; created when absent."""
    if "://" in roots.lake:
        return Path(tempfile.mkdtemp(prefix="gddl-logs-"))
    folder = Path(join(roots.lake, STATE, "logs"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
