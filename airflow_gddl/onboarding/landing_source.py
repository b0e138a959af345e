"""Facts of a landing root."""

from __future__ import annotations

from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.onboarding.facts import SourceFacts
from airflow_gddl.onboarding.landing_files import Landing
from airflow_gddl.onboarding.landing_rules import facts_of, notices_of
from airflow_gddl.onboarding.measuring import measured_key


def read_landing(landing: Landing, schemas: frozenset[str], names: frozenset[str], now: float) -> SourceFacts:
    """Every table folder below the root, or those that were asked for.

    Args:
        schemas: only these; empty: all.
        names: only these tables; empty: all of the schemas.
        now: seconds since the epoch.

    Raises:
        GddlError: the root can't be listed, as `Store`.
    """
    folders = [f for f in landing.folders(names) if not schemas or f.table.partition(".")[0] in schemas]
    return SourceFacts(
        origin="landing",
        tables=tuple(
            facts_of(folder, measured_key(landing, folder), now)
            for folder in folders
            if not table_name_fault(folder.table)
        ),
        notices=tuple(notice for folder in folders for notice in notices_of(folder)),
        schemas=schemas or None,
        names=names,
    )
