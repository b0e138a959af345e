"""Where a table is registered, from the lake; the catalog is not asked."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.registration import RegistrationState, stored
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import open_store


def registration(lake: str, spec: TableSpec, environ: Mapping[str, str]) -> RegistrationState:
    """What the lake remembers of the row's table in its catalog; an empty state where it was never registered.

    Raises:
        GddlError: the lake can't be read.
    """
    return stored(open_store(environ).read, lake, spec)
