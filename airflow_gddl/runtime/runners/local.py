"""The embedded job: a child process that runs Spark."""

from __future__ import annotations

from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runtime.runners.base import JobOutcome, Listener
from airflow_gddl.runtime.runners.java import find_java
from airflow_gddl.runtime.runners.job_process import JobProcess


class LocalRunner(JobProcess):
    """A `Runner` on this machine; JAVA_HOME and PATH of `environ` select the Java."""

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """See `JobProcess.run`.

        Raises:
            FatalError: `JAVA_MISSING`, `JAVA_TOO_OLD`, `JOB_NOT_STARTED`, or as `check_roots`.
            RetriableError: as `check_roots`.
        """
        if any(spec.tiers[table.size].engine == "spark" for table in spec.tables if table.size in spec.tiers):
            find_java(self.environ)
        return super().run(spec, listener)
