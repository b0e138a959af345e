"""Features that a row switches on and that are no part of the steps of a batch: a package each, with `feature.FEATURE`.

They are imported for the rows that use them, which `airflow_gddl.contract.features` finds. What stays core, and why:
docs/design.md, section 5.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, cast

from airflow_gddl.contract.codes import FEATURE_MISSING
from airflow_gddl.contract.layout import STATE, join
from spark_jobs.rooms import found

if TYPE_CHECKING:
    from spark_jobs.batch.feature import Feature
    from spark_jobs.batch.table_run import TableRun


def features_of(run: TableRun) -> tuple[Feature, ...]:
    """The features that the row of a run uses.

    Raises:
        FatalError: `FEATURE_MISSING`: this installation lacks one.
    """
    return tuple(map(_feature, sorted({*run.spec.features.values()})))


def installed_features() -> tuple[Feature, ...]:
    """All that this installation has, whether or not a row uses them; some are asked for by no row, and have no module
    in `airflow_gddl.contract.features`."""
    return tuple(map(_feature, _installed()))


def kept_features(run: TableRun) -> tuple[Feature, ...]:
    """Of `installed_features` those that have files of tables of the row's schema, in the folder of their name."""
    lake, exists, schema = run.job.roots.lake, run.runtime.storage.exists, run.spec.schema_name
    return tuple(_feature(name) for name in _installed() if exists(join(lake, STATE, name, schema)))


def _installed() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def _feature(name: str) -> Feature:
    what = f"this job has no feature {name!r}"
    return cast("Feature", found(f"{__name__}.{name}.feature", "FEATURE", FEATURE_MISSING, what))
