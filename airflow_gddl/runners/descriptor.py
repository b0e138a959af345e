"""Runners by name: all that metadata, tasks, plans, checks and bundles know of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError, FieldPath, MetadataError, SpecProblem
from airflow_gddl.contract.extensions import ExtensionPoint
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import TierSpec

T = TypeVar("T")
Probe = Callable[[], str]
"""A check: returns its finding, raises a `GddlError` or `ProbeSkippedError`."""


def settings_of(runner: str, cls: type[T], own: Mapping[str, Any]) -> T:
    """
    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`.
    """
    try:
        return decode(cls, dict(own))
    except FatalError as error:
        where = f"gddl.yaml, runners.{runner}{error.where.removeprefix(cls.__name__)}"
        remedy = f"correct `runners: {{{runner}: …}}`; docs/metadata.md has every field"
        raise MetadataError("RUNNER_SETTINGS_INVALID", error.what, where=where, remedy=remedy) from error


@dataclass(frozen=True, kw_only=True)
class RunnerCheck:
    """What `gddl check` gives to the checks of a runner.

    Attributes:
        name: the runner's.
        own: its settings as written.
        tiers: of enabled tables.
    """

    name: str
    own: Mapping[str, Any]
    tiers: tuple[TierSpec, ...]
    environ: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RunnerDescriptor:
    """One runner. References are `module:attribute`, loaded when they are needed.

    Attributes:
        runner: reference of a function that takes a `RunnerSettings` and returns a `Runner`, whose jobs are children of
            the calling process. Exactly one of `runner` and `platform` is given.
        platform: reference of a function that takes the settings as written, the environment and `Connections`, and
            returns a `Platform`: jobs run there, loads are deferred, landing and lake must be in an object store.
        start_seconds: from a request until machines run the job, e.g. `lambda settings, tier: 60.0`; takes the settings
            (null: the runner has none) and the name of a tier.
        cluster: jobs have the tier's `workers` machines; otherwise one.
        settings: frozen dataclass of the section `runners.<name>` of `gddl.yaml`; null: there is no such section.
        check_settings: problems of the settings that types can't express.
        compute: frozen dataclass of `tiers.<tier>.compute.<name>`, with `check_compute`; null: there is none.
        check_root: problems of a landing or lake root, by the field that names it.
        package: what must be installed, for messages; `extra`: the extra of this project that installs it.
        deployed: `gddl deploy <name>` creates its jobs.
        check: reference of a function that takes a `RunnerCheck` and yields subjects and probes, for `gddl check`.
        bundle: reference of a `JobFiles`, for `gddl bundle`.
        capacity: reference of a `RunnerCapacity`, for `gddl plan`.
    """

    start_seconds: Callable[[Any, str], float]
    runner: str = ""
    platform: str = ""
    cluster: bool = True
    settings: type[Any] | None = None
    check_settings: Callable[[Any], Iterable[SpecProblem]] = lambda _settings: ()
    compute: type[Any] | None = None
    check_compute: Callable[[Any], Iterable[SpecProblem]] = lambda _compute: ()
    check_root: Callable[[FieldPath, str], Iterable[SpecProblem]] = lambda _path, _root: ()
    package: str = ""
    extra: str = ""
    deployed: bool = False
    check: str = ""
    bundle: str = ""
    capacity: str = ""

    def __post_init__(self) -> None:
        if bool(self.runner) == bool(self.platform):
            raise ValueError("a runner has either `runner` or `platform`")

    @property
    def remote(self) -> bool:
        """Jobs run on a platform, not below the calling process."""
        return bool(self.platform)

    def decoded(self, name: str, own: Mapping[str, Any]) -> Any:
        """Settings as written as an instance of `settings`; null: the runner has none.

        Raises:
            MetadataError: `RUNNER_SETTINGS_INVALID`.
        """
        return None if self.settings is None else settings_of(name, self.settings, own)


LOCAL = RunnerDescriptor(
    runner="airflow_gddl.runners.this_machine:make",
    start_seconds=lambda _settings, _tier: 0.0,
    cluster=False,
    check="airflow_gddl.runners.this_machine:check",
)

RUNNERS: ExtensionPoint[RunnerDescriptor] = ExtensionPoint(
    what="runner",
    group="airflow_gddl.runners",
    descriptor=RunnerDescriptor,
    built_in={"local": LOCAL},
    referenced={
        "databricks": "airflow_gddl.runners.databricks:RUNNER",
        "emr_serverless": "airflow_gddl.runners.emr_serverless:RUNNER",
        "glue": "airflow_gddl.runners.glue:RUNNER",
        "spark_submit": "airflow_gddl.runners.spark_submit:RUNNER",
    },
    unknown_code="RUNNER_UNKNOWN",
    broken_code="RUNNER_BROKEN",
)


def check_remote(runner: str, own: Mapping[str, Any], roots: Mapping[FieldPath, str]) -> Iterator[SpecProblem]:
    """`RUNNER_NEEDS_S3` for each root that jobs on a platform can't use.

    Args:
        runner: one whose jobs run on a platform.
        own: its settings; with `local_roots: true` it takes folders, but none that its `check_root` refuses.
        roots: by the field that names them.

    Raises:
        GddlError: as `ExtensionPoint.get`.
    """
    descriptor = RUNNERS.get(runner)
    for path, root in roots.items():
        refused = tuple(descriptor.check_root(path, root))
        yield from refused
        if not refused and not is_s3(root) and not own.get("local_roots"):
            what = f"runner {runner} needs it in an object store"
            name = ".".join(map(str, path))
            yield SpecProblem("RUNNER_NEEDS_S3", path, root, what, f"set {name} to s3://bucket/prefix")
