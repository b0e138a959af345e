"""Next steps after `gddl onboard` has written rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from airflow_gddl.contract.layout import LandingFolder, join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.onboarding.dms_task import TASK_SETTINGS, endpoint_settings, pasted, table_mapping

_SHOWN = 5


def next_steps(tables: Sequence[TableSpec], landing: str, metadata: str, *, from_database: bool) -> Iterator[str]:
    """Lines with JSON and commands for copying.

    Args:
        tables: enabled tables of the source, sorted.
        from_database: no CDC task is known to write files yet.
    """
    place = "" if metadata == "metadata" else f" --metadata {metadata}"
    yield from ("", "Next steps:")
    if from_database and any(table.dialect == "dms" for table in tables):
        mine = [table for table in tables if table.dialect == "dms"]
        yield "- AWS DMS: create a task of type full-load-and-cdc. Table mapping:"
        yield pasted(table_mapping(mine))
        yield "  Task settings:"
        yield json.dumps(TASK_SETTINGS)
        yield "  Settings of its target endpoint, which is of type S3:"
        yield json.dumps(endpoint_settings(landing))
    yield "- Files are expected in:"
    yield from (f"  {LandingFolder(landing, table.name_in_source).path}/" for table in tables[:_SHOWN])
    if len(tables) > _SHOWN:
        yield f"  and {len(tables) - _SHOWN:,} more folders, {join(landing, 'SCHEMA', 'TABLE')}/"
    yield f"- gddl check{place}        # folders, permissions, connections, versions"
    yield f"- gddl inspect{place}      # once files are there: is the task set up well?"
    yield f"- gddl run{place}"
