"""Runners by the name that `gddl.yaml` gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.runners.base import Runner
from airflow_gddl.runners.local import LocalRunner
from airflow_gddl.runners.spark_submit import SparkSubmitRunner
from airflow_gddl.runners.spark_submit_settings import SparkSubmitSettings


@dataclass(frozen=True, kw_only=True)
class RunnerSettings:
    """What runners are made of.

    Attributes:
        command: program and first arguments of the embedded job.
        environ: environment of the caller.
        own: what `gddl.yaml` says under `runners` for this one.
    """

    command: tuple[str, ...]
    environ: Mapping[str, str]
    own: Mapping[str, Any] = field(default_factory=dict)


RUNNERS: dict[str, Callable[[RunnerSettings], Runner]] = {
    "local": lambda settings: LocalRunner(command=settings.command, environ=settings.environ),
    "spark_submit": lambda settings: SparkSubmitRunner(
        settings=decode(SparkSubmitSettings, dict(settings.own)), command=settings.command, environ=settings.environ
    ),
}


def make_runner(name: str, settings: RunnerSettings) -> Runner:
    """
    Raises:
        MetadataError: `RUNNER_UNKNOWN`.
    """
    if name not in RUNNERS:
        remedy = f"set `runner` to one of {', '.join(sorted(RUNNERS))}"
        raise MetadataError("RUNNER_UNKNOWN", f"unknown runner {name!r}", where="gddl.yaml", remedy=remedy)
    return RUNNERS[name](settings)
