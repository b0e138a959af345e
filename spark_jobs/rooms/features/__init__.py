"""Features that a row switches on and that are no part of the steps of a batch: a package each, with `feature.FEATURE`.

They are imported for the rows that use them, which `airflow_gddl.contract.features` finds. What stays core, and why:
docs/design.md, section 5.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, cast

from airflow_gddl.contract.codes import FEATURE_MISSING
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.features import lacking, used_by

if TYPE_CHECKING:
    from spark_jobs.batch.feature import Feature
    from spark_jobs.batch.table_run import TableRun


def features_of(run: TableRun) -> tuple[Feature, ...]:
    """The features that the row of a run uses.

    Raises:
        FatalError: `FEATURE_MISSING`: this installation lacks one.
    """
    for _, feature in lacking(run.spec):
        raise _missing(feature)
    return tuple(_feature(name) for name in used_by(run.spec))


def installed_features() -> tuple[Feature, ...]:
    """All that this installation has, whether or not a row uses them; some are asked for by no row, and have no module
    in `airflow_gddl.contract.features`."""
    return tuple(_feature(name) for name in sorted(module.name for module in pkgutil.iter_modules(__path__)))


def _feature(name: str) -> Feature:
    module = f"{__name__}.{name}"
    try:
        return cast("Feature", importlib.import_module(f"{module}.feature").FEATURE)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise _missing(name) from None


def _missing(name: str) -> FatalError:
    what, remedy = f"this job has no feature {name!r}", "install all of airflow-gddl where the job runs"
    return FatalError(FEATURE_MISSING, what, where=f"{__name__}.{name}", remedy=remedy)
