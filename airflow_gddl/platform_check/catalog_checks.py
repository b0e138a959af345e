"""The check of the catalogs that the metadata names: one request to each, which changes nothing."""

from __future__ import annotations

from airflow_gddl.cli.check import probe_catalog
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.extensions import ProbeSkippedError, entry_name
from airflow_gddl.platform_check.checks import NotTriedError
from airflow_gddl.platform_check.place import CheckContext
from airflow_gddl.runners.descriptor import RUNNERS


def answer(context: CheckContext) -> str:
    """
    Raises:
        NotTriedError: there is none, or none can be tried from here.
        GddlError: as `probe_catalog`.
    """
    loaded = context.loaded
    if not loaded.catalogs:
        raise NotTriedError("no-catalog")
    answered, skipped = 0, ""
    for name, spec in loaded.catalogs.items():
        databases = (entry_name(spec, table).database for table in loaded.tables if table.catalog == name)
        try:
            probe_catalog(spec, next(databases, "default"), context.cli.environ)
        except ProbeSkippedError as error:
            skipped = str(error)
        except GddlError as error:
            if not RUNNERS.get(loaded.runner).remote:
                raise
            skipped = str(error)  # jobs reach it from elsewhere
        else:
            answered += 1
    if not answered:
        raise NotTriedError("not-from-here", skipped)
    return f"{answered} of {len(loaded.catalogs)} answered"
