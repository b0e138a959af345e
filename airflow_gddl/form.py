"""What a person sees of a pipeline in Airflow: the trigger form and the DAG's page."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_gddl.topology import Pipeline

_TABLE = r"^[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}\.[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}$"


def params() -> dict[str, Param]:
    """The form's fields; the same go into `conf` of a REST call."""
    return {
        "tables": Param(
            [],
            type="array",
            items={"type": "string", "pattern": _TABLE},
            maxItems=1000,
            title="Tables",
            description="schema.name, one a line; empty: all of this DAG. Named tables run even when nothing is new.",
        ),
        "full_refresh": Param(
            False,
            type="boolean",
            title="Full refresh",
            description="Rebuild from all landing files; readers see the old table until the new one is there.",
        ),
        "from": _moment("From", "Run tables with landing files last modified from this moment on, taken or not."),
        "to": _moment("To", "The same, before this moment. What was loaded is not loaded twice."),
    }


def documentation(pipeline: Pipeline) -> str:
    """The DAG's page. That of a pack names no table: it would change with every row."""
    about = f"**Source** {pipeline.source} · **tier** {pipeline.tier} · **priority** {pipeline.priority}"
    what = f"`{pipeline.tables[0]}`" if pipeline.tables else "a pack of tables"
    return (
        f"Brings {what} into Delta Lake.\n\n{about}\n\n"
        "`landed` looks which tables have new files, `initial_load` loads those that have no replica, "
        "`incremental_load` brings the others up to date. Trigger it with *tables* to run some alone, with *full "
        "refresh* to rebuild them. "
        "Clear a failed task to go on where it stopped; each table's result is in the task's log and XCom."
    )


def _moment(title: str, description: str) -> Param:
    schema: dict[str, Any] = {"type": ["null", "string"], "format": "date-time"}
    return Param(None, title=title, description=description, **schema)
