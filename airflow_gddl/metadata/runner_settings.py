"""Settings of runners, and of tiers for them, checked when the metadata is read, by the runners' classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.errors import FieldPath, SpecProblem
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.metadata.runners import databricks, emr_serverless, glue, spark_submit
from airflow_gddl.metadata.validation import FieldShape


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


RUNNERS = {
    "databricks": CheckedSettings(FieldShape(databricks.DatabricksSettings), databricks.check_settings),
    "emr_serverless": CheckedSettings(FieldShape(emr_serverless.EmrSettings), emr_serverless.check_settings),
    "glue": CheckedSettings(FieldShape(glue.GlueSettings), glue.check_settings),
    "spark_submit": CheckedSettings(FieldShape(spark_submit.SparkSubmitSettings), spark_submit.check_settings),
}
PLATFORMS = frozenset(name for name, checked in RUNNERS.items() if "local_roots" in checked.shape.names)
"""Runners whose jobs run on machines of a platform, which can't access local folders."""
COMPUTE = {"spark_submit": CheckedSettings(FieldShape(spark_submit.SparkSubmitCompute), spark_submit.check_compute)}


def written_runners(section: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Mapping[str, Any]]:
    """Settings by runner."""
    given = {name: value or {} for name, value in section.items()}
    return {name: RUNNERS[name].shape.listed(value) if name in RUNNERS else value for name, value in given.items()}


def check_runners(
    runner: str, sections: Mapping[str, Mapping[str, Any] | None], tiers: Mapping[str, TierSpec]
) -> Iterator[SpecProblem]:
    """Problems of `runner`, `runners` and of each tier's `compute`.

    Args:
        runner: the chosen one, whose section is checked even where it is absent. Sections of others that this version
            does not have are left alone.
    """
    names = ("local", *RUNNERS)
    if runner not in names:
        remedy = f"write one of {', '.join(names)}"
        yield SpecProblem("RUNNER_UNKNOWN", ("runner",), runner, "no such runner", remedy)
    for name, checked in RUNNERS.items():
        if name in sections or name == runner:
            yield from checked.problems(sections.get(name) or {}, ("runners", name))
    for tier, spec in tiers.items():
        for name, values in spec.compute.items():
            if name in COMPUTE:
                yield from COMPUTE[name].problems(values, ("tiers", tier, "compute", name))
