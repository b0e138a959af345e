"""Runners by their name in `gddl.yaml`. A platform's libraries are imported only when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.spec import JobSpec, Roots
from airflow_gddl.metadata.runners.spark_submit import SparkSubmitSettings
from airflow_gddl.metadata.sources import check_remote
from airflow_gddl.runtime.runners.attempts import Attempts, TaskKey
from airflow_gddl.runtime.runners.base import JobOutcome, Listener, Runner, settings_of
from airflow_gddl.runtime.runners.child import nothing
from airflow_gddl.runtime.runners.java import find_java
from airflow_gddl.runtime.runners.job_process import JobProcess
from airflow_gddl.runtime.runners.platform import Connections, FromEnvironment, Platform
from airflow_gddl.runtime.runners.remote import RemoteRunner
from airflow_gddl.runtime.runners.spark_submit import SparkSubmitRunner
from airflow_gddl.stores import open_store


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


_PLATFORMS = {
    "databricks": ("airflow_gddl.runtime.runners.databricks", "databricks-sdk"),
    "emr_serverless": ("airflow_gddl.runtime.runners.emr_serverless", "boto3"),
    "glue": ("airflow_gddl.runtime.runners.glue", "boto3"),
}
RUNNERS = ("local", "spark_submit", *_PLATFORMS)


@dataclass(frozen=True, kw_only=True)
class SubmissionContext:
    """Owner and options of a remote job.

    Attributes:
        patient, since: see `RemoteRunner`.
    """

    task: TaskKey
    roots: Roots
    patient: bool = True
    since: int | None = None


@dataclass(frozen=True, kw_only=True)
class RunnerSettings:
    """Inputs for creating a runner.

    Attributes:
        command: program and first arguments of the embedded job.
        environ: environment of the caller.
        own: settings under `runners` in `gddl.yaml` for this runner.
        submission: null where jobs run on this machine only.
        tick: called periodically while a job runs on this machine, in the caller's thread.
    """

    command: tuple[str, ...]
    environ: Mapping[str, str]
    own: Mapping[str, Any] = field(default_factory=dict)
    submission: SubmissionContext | None = None
    connections: Connections = field(default_factory=FromEnvironment)
    tick: Callable[[], None] = nothing


def make_runner(name: str, settings: RunnerSettings) -> Runner:
    """
    Raises:
        MetadataError: `RUNNER_UNKNOWN`, `RUNNER_NEEDS_S3`, `RUNNER_SETTINGS_INVALID`; what `make_platform` raises comes
            with the first job.
    """
    if name == "local":
        return LocalRunner(command=settings.command, environ=settings.environ, tick=settings.tick)
    if name == "spark_submit":
        own = settings_of(name, SparkSubmitSettings, settings.own)
        driver = JobProcess(command=settings.command, environ=settings.environ, tick=settings.tick)
        return SparkSubmitRunner(settings=own, driver=driver)
    submission = settings.submission
    if name not in _PLATFORMS:
        raise _unknown(name)
    if submission is None:
        raise LookupError(f"runner {name} needs a submission context")
    _check_roots(name, settings.own, submission.roots)
    store = open_store(settings.environ)
    return RemoteRunner(
        open=lambda: make_platform(name, settings.own, settings.environ, settings.connections),
        store=store,
        attempts=Attempts(store, submission.roots.lake, submission.task),
        patient=submission.patient,
        since=submission.since,
    )


def _check_roots(name: str, own: Mapping[str, Any], roots: Roots) -> None:
    """Checked again, since a task may name another runner than `gddl.yaml`."""
    for problem in check_remote(name, own, {("landing",): roots.landing, ("lake",): roots.lake}):
        what = f"{problem.field} {problem.value!r}: {problem.message}"
        raise MetadataError(problem.code, what, where="gddl.yaml", remedy=problem.remedy)


def make_platform(name: str, own: Mapping[str, Any], environ: Mapping[str, str], connections: Connections) -> Platform:
    """
    Raises:
        MetadataError: `RUNNER_UNKNOWN`, `RUNNER_SETTINGS_INVALID`.
        FatalError: `RUNNER_PACKAGE_MISSING`.
    """
    if name not in _PLATFORMS:
        raise _unknown(name)
    module, package = _PLATFORMS[name]
    try:
        make: Callable[..., Platform] = importlib.import_module(module).make
    except ModuleNotFoundError as error:
        remedy = f"pip install 'airflow-gddl[{name.replace('_', '-')}]'"
        what = f"runner {name} needs {package}: {error}"
        raise FatalError("RUNNER_PACKAGE_MISSING", what, remedy=remedy) from error
    return make(own, environ, connections)


def _unknown(name: str) -> MetadataError:
    remedy = f"set `runner` to one of {', '.join(RUNNERS)}"
    return MetadataError("RUNNER_UNKNOWN", f"unknown runner {name!r}", where="gddl.yaml", remedy=remedy)
