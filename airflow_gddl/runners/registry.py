"""Creates runners and platforms by their name in `gddl.yaml`; their libraries are imported only here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runners.child import nothing
from airflow_gddl.runners.descriptor import RUNNERS, check_remote
from airflow_gddl.runners.interface import Connections, FromEnvironment, Platform, Runner
from airflow_gddl.runners.remote import Attempts, RemoteRunner, TaskKey
from airflow_gddl.stores import open_store


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
        FatalError: `RUNNER_BROKEN`.
    """
    descriptor = RUNNERS.get(name)
    if not descriptor.remote:
        make: Callable[[RunnerSettings], Runner] = RUNNERS.load(descriptor.runner)
        return make(settings)
    submission = settings.submission
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
        FatalError: `RUNNER_PACKAGE_MISSING`, `RUNNER_BROKEN`.
        LookupError: the runner has no platform.
    """
    descriptor = RUNNERS.get(name)
    if not descriptor.remote:
        raise LookupError(f"jobs of runner {name} run on no platform")
    module, _, attribute = descriptor.platform.partition(":")
    try:
        make: Callable[..., Platform] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        wanted = f"airflow-gddl[{descriptor.extra}]" if descriptor.extra else descriptor.package or error.name
        what = f"runner {name} needs {descriptor.package or error.name}: {error}"
        raise FatalError("RUNNER_PACKAGE_MISSING", what, remedy=f"pip install '{wanted}'") from error
    return make(own, environ, connections)
