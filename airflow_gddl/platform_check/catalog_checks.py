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
        NotTriedError: there is none, or one of them can't be tried from here.
        GddlError: as `probe_catalog`.
    """
    loaded = context.loaded
    if not loaded.catalogs:
        raise NotTriedError("no-catalog")
    untried: list[str] = []
    for name, spec in loaded.catalogs.items():
        databases = (entry_name(spec, table).database for table in loaded.tables if table.catalog == name)
        try:
            probe_catalog(spec, next(databases, "default"), context.cli.environ)
        except ProbeSkippedError as error:
            untried.append(str(error))
        except GddlError as error:
            if not RUNNERS.get(loaded.runner).remote:
                raise
            untried.append(str(error))  # jobs reach it from elsewhere
    if untried:
        raise NotTriedError("not-from-here", f"{len(untried)} of {len(loaded.catalogs)}: {untried[0]}")
    return f"{len(loaded.catalogs)} answered"
