"""One process of a standalone Airflow."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_gddl.contract.python_command import module_command

_TAIL_LINES = 15


@dataclass(frozen=True)
class PartSpec:
    """A part's name, and the arguments of `airflow` that start it."""

    name: str
    arguments: Sequence[str]


# What `airflow standalone` starts. Log servers are for other machines, and would listen on all addresses.
PARTS = (
    PartSpec("api-server", ("api-server",)),
    PartSpec("scheduler", ("scheduler", "--skip-serve-logs")),
    PartSpec("dag-processor", ("dag-processor",)),
    PartSpec("triggerer", ("triggerer", "--skip-serve-logs")),
)
MIGRATION = PartSpec("migration", ("db", "migrate"))


class Part:
    """A running part; its output goes to a file.

    It leads a session of its own: Ctrl-C in a terminal reaches the supervisor alone, who then ends the parts in order.
    """

    def __init__(self, spec: PartSpec, environ: Mapping[str, str], folder: Path) -> None:
        self.spec = spec
        self.log = folder / f"{spec.name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this Python and fixed arguments
                module_command("airflow", *spec.arguments),
                env=dict(environ),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Null while it runs; negative: the signal that ended it."""
        return self._process.poll()

    @property
    def tail(self) -> str:
        """The last lines of its log that aren't blank."""
        with self.log.open(encoding="utf-8", errors="backslashreplace") as file:
            return "\n".join(deque((line.rstrip() for line in file if line.strip()), maxlen=_TAIL_LINES))

    def ask_to_end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
