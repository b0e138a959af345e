"""The embedded job: a child process that runs Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runtime.runners.base import JobOutcome, Listener
from airflow_gddl.runtime.runners.child import nothing
from airflow_gddl.runtime.runners.java import find_java
from airflow_gddl.runtime.runners.job_process import GRACE_SECONDS, JobProcess


@dataclass(frozen=True, kw_only=True)
class LocalRunner:
    """See `JobProcess`.

    Attributes:
        command: the job's program and first arguments.
        environ: the child's environment; its JAVA_HOME and PATH select the Java.
        grace_seconds: how long a job that was asked to stop may take before it is killed.
        tick: see `JobProcess`.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    grace_seconds: float = GRACE_SECONDS
    tick: Callable[[], None] = nothing

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """See `JobProcess.run`.

        Raises:
            FatalError: `JAVA_MISSING`, `JAVA_TOO_OLD`, `JOB_NOT_STARTED`, or as `check_roots`.
            RetriableError: as `check_roots`.
        """
        if any(spec.tiers[table.size].engine == "spark" for table in spec.tables if table.size in spec.tiers):
            find_java(self.environ)
        job = JobProcess(command=self.command, environ=self.environ, grace_seconds=self.grace_seconds, tick=self.tick)
        return job.run(spec, listener)
