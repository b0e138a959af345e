"""A run's wheel task: `gddl-job` as a local process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence

_GRACE_SECONDS = 10.0
_LINES = 200


_ALLOWED = re.compile(
    r"GDDL_(SETTLE|SOURCE_[A-Z0-9_]{1,100})|AWS_(REGION|DEFAULT_REGION|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN)|TZ"
)
"""Variables that a job may set. Others choose what code the owner of the fake runs, as PYTHONPATH and GDDL_JARS do."""


def allowed(environ: Mapping[str, str]) -> dict[str, str]:
    """Those of a job's variables that its process gets."""
    return {name: value for name, value in environ.items() if _ALLOWED.fullmatch(name)}


class TaskProcess:
    """A process whose last lines are kept; it ends with this one."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES)
        self.cancelled = False
        self._process = subprocess.Popen(  # noqa: S603 - the job's own command; only its parameters come with a request
            [*command, "--parent", str(os.getpid())],
            env={**os.environ, **allowed(environ)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            process_group=0,
        )

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        if self._process.stdout is not None:
            with self._process.stdout as out:
                self.lines.extend(line.rstrip("\n") for line in out)
        return self._process.wait()

    def cancel(self) -> None:
        """Terminate it, and kill it after a grace period."""
        self.cancelled = True
        self._process.terminate()
        threading.Timer(_GRACE_SECONDS, self._kill).start()

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
