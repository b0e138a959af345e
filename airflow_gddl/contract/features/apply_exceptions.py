"""`awsdms_apply_exceptions`: the table in which AWS DMS notes changes that it could not apply to its target."""

from __future__ import annotations

from airflow_gddl.contract.endings import FILES, Ending
from airflow_gddl.contract.features import FeatureDescriptor
from airflow_gddl.contract.spec import TableSpec

EXCEPTIONS_CODE = "SOURCE_EXCEPTIONS"
_DAY = 86_400.0


def is_used(spec: TableSpec) -> bool:
    return spec.name_in_source.lower().endswith(".awsdms_apply_exceptions")


FEATURE = FeatureDescriptor(
    is_used=is_used,
    endings={
        EXCEPTIONS_CODE: Ending(
            ("run", *FILES), "no run shows that somebody saw to them; it ends after a day, too", lasts=_DAY
        ),
    },
)
