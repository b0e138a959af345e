"""Runners by name: all that metadata, tasks, plans, checks and bundles know of each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.codes import RUNNER_BROKEN, RUNNER_NEEDS_S3, RUNNER_SETTINGS_INVALID, RUNNER_UNKNOWN
from airflow_gddl.contract.errors import FatalError, FieldPath, MetadataError, SpecProblem, documented, invalid_option
from airflow_gddl.contract.extensions import ExtensionPoint
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import Roots, TierSpec
from airflow_gddl.runners.child import nothing
from airflow_gddl.runners.interface import Connections, FromEnvironment, Platform, Runner
from airflow_gddl.runners.remote import Attempts, RemoteRunner, TaskKey
from airflow_gddl.stores import open_store

T = TypeVar("T")
Probe = Callable[[], str]
"""A check: returns its finding, raises a `GddlError` or `ProbeSkippedError`."""


def settings_of(runner: str, cls: type[T], declared: Mapping[str, Any]) -> T:
    """
    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`.
    """
    try:
        return decode(cls, dict(declared))
    except FatalError as error:
        where = f"gddl.yaml, runners.{runner}{error.where.removeprefix(cls.__name__)}"
        remedy = f"correct `runners: {{{runner}: …}}`; {documented('metadata.md')} has every field"
        raise MetadataError(RUNNER_SETTINGS_INVALID, error.what, where=where, remedy=remedy) from error


@dataclass(frozen=True, kw_only=True)
class RunnerCheck:
    """What `gddl check` gives to the checks of a runner.

    Attributes:
        name: the runner's.
        declared: its settings as written.
        roots: landing and lake.
        tiers: of enabled tables, by name.
        command: program and first arguments of a job on this machine.
        modules: optional ones that jobs of these rows import.
        reads_log: whether such a job reads the log of a source.
    """

    name: str
    declared: Mapping[str, Any]
    roots: Roots
    tiers: Mapping[str, TierSpec]
    environ: Mapping[str, str]
    command: tuple[str, ...]
    modules: tuple[str, ...] = ()
    reads_log: bool = False


DELTALAKE = "deltalake>=1.6.6,<1.7"
"""What saved jobs install beside the wheel."""
RUNS_AT_ONCE = 20
"""Runs of a saved job at once; more are queued."""
Renderer = Callable[[Path, Mapping[str, TierSpec], Any, Roots], str]
"""Writes the saved jobs of tiers into a folder in the platform's own form, given the runner's settings and the roots;
returns what a person does with the file."""


@dataclass(frozen=True, kw_only=True)
class RunnerDescriptor:
    """One runner. References are `module:attribute`, loaded when they are needed.

    Attributes:
        runner: reference of a function that takes a `RunnerSettings` and returns a `Runner`, whose jobs are children of
            the calling process. Exactly one of `runner` and `platform` is given.
        platform: reference of a function that takes the settings as written, the environment and `Connections`, and
            returns a `Platform`: jobs run there, loads are deferred, landing and lake must be in an object store.
        settings: frozen dataclass of the section `runners.<name>` of `gddl.yaml`; null: there is no such section.
        check_settings: problems of the settings that types can't express.
        check_tiers: problems of settings and names of all tiers together, of the runner that the metadata names.
        check_root: problems of a landing or lake root, by the field that names it.
        install: what pip must install where the platform is called, e.g. `airflow-gddl[glue]`; empty: nothing.
        deploy: reference of a `Renderer` of the jobs that the platform keeps, for `gddl deploy <name>`; empty: none.
        check: reference of a function that takes a `RunnerCheck` and yields subjects and probes, for `gddl check`.
        bundle: reference of a `JobFiles`, for `gddl bundle`.
    """

    runner: str = ""
    platform: str = ""
    settings: type[Any] | None = None
    check_settings: Callable[[Any], Iterable[SpecProblem]] = lambda _settings: ()
    check_tiers: Callable[[Any, Iterable[str]], Iterable[SpecProblem]] = lambda _settings, _tiers: ()
    check_root: Callable[[FieldPath, str], Iterable[SpecProblem]] = lambda _path, _root: ()
    install: str = ""
    deploy: str = ""
    check: str = ""
    bundle: str = ""

    def __post_init__(self) -> None:
        if bool(self.runner) == bool(self.platform):
            raise ValueError("a runner has either `runner` or `platform`")

    @property
    def remote(self) -> bool:
        """Jobs run on a platform, not below the calling process."""
        return bool(self.platform)


LOCAL = RunnerDescriptor(
    runner="airflow_gddl.runners.this_machine:make",
    check="airflow_gddl.runners.this_machine:check",
)

RUNNERS: ExtensionPoint[RunnerDescriptor] = ExtensionPoint(
    what="runner",
    group="airflow_gddl.runners",
    descriptor=RunnerDescriptor,
    built_in={"local": LOCAL},
    referenced={
        "databricks": "airflow_gddl.runners.databricks.settings:RUNNER",
        "emr_serverless": "airflow_gddl.runners.emr_serverless.settings:RUNNER",
        "glue": "airflow_gddl.runners.glue.settings:RUNNER",
        "spark_submit": "airflow_gddl.runners.spark_submit:RUNNER",
    },
    unknown_code=RUNNER_UNKNOWN,
    broken_code=RUNNER_BROKEN,
)


def check_remote(runner: str, declared: Mapping[str, Any], roots: Mapping[FieldPath, str]) -> Iterator[SpecProblem]:
    """`RUNNER_NEEDS_S3` for each root that jobs on a platform can't use.

    Args:
        runner: one whose jobs run on a platform.
        declared: its settings; with `local_roots: true` it takes folders, but none that its `check_root` refuses.
        roots: by the field that names them.

    Raises:
        GddlError: as `ExtensionPoint.get`.
    """
    descriptor = RUNNERS.get(runner)
    for path, root in roots.items():
        refused = tuple(descriptor.check_root(path, root))
        yield from refused
        if not refused and not is_s3(root) and not declared.get("local_roots"):
            what = f"runner {runner} needs it in an object store"
            name = ".".join(map(str, path))
            yield SpecProblem(RUNNER_NEEDS_S3, path, root, what, f"set {name} to s3://bucket/prefix")


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
        declared: settings under `runners` in `gddl.yaml` for this runner.
        submission: null where jobs run on this machine only.
        tick: called periodically while a job runs on this machine, in the caller's thread.
    """

    command: tuple[str, ...]
    environ: Mapping[str, str]
    declared: Mapping[str, Any] = field(default_factory=dict)
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
    # Checked again, since a task may name another runner than `gddl.yaml`.
    roots: dict[FieldPath, str] = {("landing",): submission.roots.landing, ("lake",): submission.roots.lake}
    for problem in check_remote(name, settings.declared, roots):
        what = f"{problem.field} {problem.value!r}: {problem.message}"
        raise MetadataError(problem.code, what, where="gddl.yaml", remedy=problem.remedy)
    store = open_store(settings.environ)
    return RemoteRunner(
        open=lambda: make_platform(name, settings.declared, settings.environ, settings.connections),
        store=store,
        attempts=Attempts(store, submission.roots.lake, submission.task),
        patient=submission.patient,
        since=submission.since,
    )


def make_platform(
    name: str, declared: Mapping[str, Any], environ: Mapping[str, str], connections: Connections
) -> Platform:
    """
    Raises:
        MetadataError: `RUNNER_UNKNOWN`, `RUNNER_SETTINGS_INVALID`.
        FatalError: `PACKAGE_MISSING`, `RUNNER_BROKEN`.
        LookupError: the runner has no platform.
    """
    descriptor = RUNNERS.get(name)
    if not descriptor.remote:
        raise LookupError(f"jobs of runner {name} run on no platform")
    make: Callable[..., Platform] = _imported(descriptor.platform, f"runner {name}", descriptor.install)
    return make(declared, environ, connections)


def renderer_of(name: str) -> Renderer:
    """
    Raises:
        MetadataError: `RUNNER_UNKNOWN`; `OPTION_INVALID`: the platform keeps no jobs.
        FatalError: `PACKAGE_MISSING`, `RUNNER_BROKEN`.
    """
    descriptor = RUNNERS.get(name)
    if not descriptor.deploy:
        remedy = "leave it out: this runner needs no saved jobs"
        raise invalid_option(f"{name}: there are no jobs to deploy", remedy)
    found: Renderer = _imported(descriptor.deploy, f"gddl deploy {name}", descriptor.install)
    return found


def _imported(reference: str, user: str, install: str) -> Any:
    """What a reference names, which may need a package that is not installed."""
    module, _, attribute = reference.partition(":")
    with needed_by(user, install=install):
        return getattr(importlib.import_module(module), attribute)
