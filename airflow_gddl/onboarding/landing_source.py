"""Facts of a landing root. Keys that nothing declares are measured: columns with distinct values in the full load."""

from __future__ import annotations

import pyarrow as pa

from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.devtools.simulate.proposing import propose_keys
from airflow_gddl.onboarding.facts import MEASURED, KeyFact, SourceFacts
from airflow_gddl.onboarding.landing_files import Landing, TableFolder
from airflow_gddl.onboarding.landing_rules import facts_of, is_time, key_candidates, notices_of

MOST_ROWS = 2_000_000
"""Maximum size of a measured full load: a sample proves nothing."""


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
            facts_of(folder, _measured_key(landing, folder), now)
            for folder in folders
            if not table_name_fault(folder.table)
        ),
        notices=tuple(notice for folder in folders for notice in notices_of(folder)),
        schemas=schemas or None,
        names=names,
    )


def _measured_key(landing: Landing, folder: TableFolder) -> KeyFact | None:
    """The first of the likely columns, pairs or triples that is unique in all rows; null: none, or too much to read.

    A full load without rows, or of one row, proves nothing either.
    """
    columns, loads = key_candidates(folder), folder.of("load")
    rows = sum(footer.rows for footer in folder.footers_of("load"))
    complete = len(folder.footers_of("load")) == len(loads)
    if not columns or rows < 2 or rows > MOST_ROWS or not complete:
        return None
    parts = list(landing.read(folder.table, loads, columns))
    if sum(part.num_rows for part in parts) != rows:  # a file could not be read again
        return None
    found = _unique(pa.concat_tables(parts, promote_options="permissive").select(columns))
    if found is None:
        return None
    return KeyFact(columns=found, evidence=f"{MEASURED}: unique in all {rows:,} rows of the full load")


def _unique(table: pa.Table) -> tuple[str, ...] | None:
    """The first unique combination of columns; a time column alone does not count."""
    shape = propose_keys({"": table})[""]
    if shape.surrogate is not None:
        return None
    if len(shape.keys) == 1 and is_time(str(table.schema.field(shape.keys[0]).type)):
        return _unique(table.drop_columns(list(shape.keys)))
    return shape.keys
