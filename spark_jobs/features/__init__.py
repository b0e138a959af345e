"""Features that a row switches on and that are no part of the steps of a batch: a package each, with `feature.FEATURE`.

They are imported for the rows that use them. What stays core, and why: docs/design.md, section 4.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from airflow_gddl.contract.errors import FatalError

if TYPE_CHECKING:
    from airflow_gddl.contract.spec import TableSpec, TierSpec
    from spark_jobs.batch.feature import Feature
    from spark_jobs.batch.table_run import TableRun

FEATURES: Mapping[str, Callable[[TableSpec, TierSpec], bool]] = {
    "apply_exceptions": lambda spec, _: spec.name_in_source.lower().endswith(".awsdms_apply_exceptions"),
    "iceberg": lambda spec, _: spec.iceberg,
    "shadow": lambda spec, tier: bool(tier.shadow if spec.shadow is None else spec.shadow),
}
"""By name, whether a row of a tier uses it; in the order in which they are called."""


def features_of(run: TableRun) -> tuple[Feature, ...]:
    """The features that the row of a run uses.

    Raises:
        FatalError: `FEATURE_MISSING`: this installation lacks one.
    """
    return tuple(_feature(name) for name, is_used in FEATURES.items() if is_used(run.spec, run.tier))


def installed_features() -> tuple[Feature, ...]:
    """All that this installation has, whether or not a row uses them."""
    return tuple(_feature(name) for name in FEATURES if find_spec(f"{__name__}.{name}") is not None)


def _feature(name: str) -> Feature:
    module = f"{__name__}.{name}"
    try:
        return cast("Feature", importlib.import_module(f"{module}.feature").FEATURE)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        what, remedy = f"this job has no feature {name!r}", "install all of airflow-gddl where the job runs"
        raise FatalError("FEATURE_MISSING", what, where=module, remedy=remedy) from None
