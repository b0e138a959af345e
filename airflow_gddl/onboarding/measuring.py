"""Keys that nobody declared: columns whose values all differ in the full load. Reads its files, up to a bound."""

from __future__ import annotations

import pyarrow as pa

from airflow_gddl.onboarding.facts import KeyFact
from airflow_gddl.onboarding.landing_files import Landing, TableFolder
from airflow_gddl.onboarding.landing_rules import key_candidates
from airflow_gddl.simulate.source import propose_keys

MOST_ROWS = 2_000_000
"""A larger full load is not measured: a part of it proves nothing."""


def measured_key(landing: Landing, folder: TableFolder, most_rows: int = MOST_ROWS) -> KeyFact | None:
    """The first of the likely columns, pairs or triples that is unique in all rows; null: none, or too much to read.

    A full load without rows, or of one row, proves nothing either.
    """
    columns, loads = key_candidates(folder), folder.of("load")
    rows = sum(footer.rows for footer in folder.footers_of("load"))
    complete = len(folder.footers_of("load")) == len(loads)
    if not columns or rows < 2 or rows > most_rows or not complete:
        return None
    table = pa.concat_tables(landing.read(folder.table, loads, columns), promote_options="permissive")
    if table.num_rows != rows:  # a file could not be read again
        return None
    shape = propose_keys({folder.table: table.select([name for name in columns if name in table.schema.names])})
    found = shape[folder.table]
    if found.surrogate is not None:
        return None
    return KeyFact(columns=found.keys, evidence=f"measured: unique in all {rows:,} rows of the full load")
