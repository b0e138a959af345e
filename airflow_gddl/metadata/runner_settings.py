"""Settings of runners, and of tiers for them, checked when the metadata is read, by the runners' classes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.errors import FatalError, FieldPath, SpecProblem
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.metadata.validation import FieldShape
from airflow_gddl.runners.descriptor import RUNNERS, RunnerDescriptor


@dataclass(frozen=True)
class CheckedSettings:
    """A class of settings, and its checks beyond types."""

    shape: FieldShape[Any]
    check: Callable[[Any], Iterable[SpecProblem]]

    def problems(self, values: Mapping[str, Any], path: FieldPath) -> Iterator[SpecProblem]:
        built = self.shape.build(values, path)
        if isinstance(built, tuple):
            yield from built
        else:
            yield from (replace(problem, path=(*path, *problem.path)) for problem in self.check(built))


@functools.cache
def settings_of_runner(descriptor: RunnerDescriptor) -> CheckedSettings | None:
    """Of the section `runners.<name>`; null: the runner has none."""
    if descriptor.settings is None:
        return None
    return CheckedSettings(FieldShape(descriptor.settings), descriptor.check_settings)


@functools.cache
def compute_of_runner(descriptor: RunnerDescriptor) -> CheckedSettings | None:
    """Of `tiers.<tier>.compute.<name>`; null: the runner has none."""
    return (
        None
        if descriptor.compute is None
        else CheckedSettings(FieldShape(descriptor.compute), descriptor.check_compute)
    )


def written_runners(section: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Mapping[str, Any]]:
    """Settings by runner."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, value in section.items():
        descriptor = _known(name)
        checked = None if descriptor is None else settings_of_runner(descriptor)
        found[name] = (value or {}) if checked is None else checked.shape.listed(value or {})
    return found


def check_runners(
    runner: str, sections: Mapping[str, Mapping[str, Any] | None], tiers: Mapping[str, TierSpec]
) -> Iterator[SpecProblem]:
    """Problems of `runner`, `runners` and of each tier's `compute`.

    Args:
        runner: the chosen one, whose section is checked even where it is absent. Sections of others that are not
            installed are left alone.
    """
    try:
        RUNNERS.get(runner)
    except FatalError as error:
        if error.code == "RUNNER_UNKNOWN":
            remedy = f"write one of {', '.join(RUNNERS.names())}"
            yield SpecProblem(error.code, ("runner",), runner, "no such runner", remedy)
        else:
            yield SpecProblem(error.code, ("runner",), runner, error.what, error.remedy)
    for name in dict.fromkeys((*sections, runner)):
        descriptor = _known(name)
        checked = None if descriptor is None else settings_of_runner(descriptor)
        if checked is not None:
            yield from checked.problems(sections.get(name) or {}, ("runners", name))
    for tier, spec in tiers.items():
        for name, values in spec.compute.items():
            descriptor = _known(name)
            checked = None if descriptor is None else compute_of_runner(descriptor)
            if checked is not None:
                yield from checked.problems(values, ("tiers", tier, "compute", name))


def is_remote(runner: str) -> bool:
    """False also of a runner that is not known, which `check_runners` reports."""
    descriptor = _known(runner)
    return descriptor is not None and descriptor.remote


def _known(name: str) -> RunnerDescriptor | None:
    try:
        return RUNNERS.get(name)
    except FatalError:
        return None
