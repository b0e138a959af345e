"""Jobs in processes of their own, which end with their JVM whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from airflow_gddl.contract.codec import to_document, to_json
from airflow_gddl.contract.spec import JobSpec
from tests.harness.waiting import wait_for

ROOT = Path(__file__).parents[2]
TIMEOUT = 600.0


@dataclass(frozen=True)
class Ended:
    """Attributes:
    status: exit status; minus the signal's number when a signal ended it.
    """

    status: int
    out: str
    err: str


class Child:
    """A Python module in a process group of its own; a context manager that leaves nothing of the group alive."""

    def __init__(self, module: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        wait_for(lambda: not living(self._process.pid), f"the end of process group {self._process.pid}")
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_error(self, is_wanted: Callable[[str], bool], beginning: str) -> str:
        """The first line of its standard error that begins so and is wanted."""
        assert self._process.stderr is not None
        return next(line for line in self._process.stderr if line.startswith(beginning) and is_wanted(line))

    def end(self, timeout: float = TIMEOUT) -> Ended:
        """Wait for the process itself; the JVM it leaves behind holds no pipe of ours for long, being without one."""
        out, err = self._process.communicate(timeout=timeout)
        return Ended(self._process.returncode, out, err)


def living(group: int) -> list[int]:
    """Processes of the group that are not dead yet."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in ("Z", "X"):
                found.append(int(stat.parent.name))
    return found


def job_child(job: JobSpec, *more: str, env: Mapping[str, str] | None = None) -> Child:
    """`gddl-job` on this job, whose specification is written as Airflow writes it."""
    return Child("spark_jobs.main", ["--spec", to_document(job), *more], env)


def killed_child(job: JobSpec, step: str, occurrence: int = 1) -> Ended:
    """The job of one table, killed right after the step; its JVM is dead too when this returns."""
    (spec,) = job.tables
    return killed_at(job, {spec.table: step}, occurrence)


def killed_at(job: JobSpec, steps: Mapping[str, str], occurrence: int = 1) -> Ended:
    """The job, killed when each of its tables stands right after its step."""
    roomy = {size: replace(tier, cores=max(tier.cores, len(steps))) for size, tier in job.tiers.items()}
    with Child(
        "tests.spark.crash_child", [to_json(replace(job, tiers=roomy)), json.dumps(steps), str(occurrence)]
    ) as child:
        return child.end()
