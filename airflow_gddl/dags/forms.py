"""What a person sees of a pipeline in Airflow: the trigger form and the DAG's page."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_gddl.metadata.topology import Pipeline

_TABLE = r"^[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}\.[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}$"
# `format` alone is not checked where a validator of RFC 3339 is not installed; the form's own picker goes by it.
_MOMENT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"


def params() -> dict[str, Param]:
    """The form's fields; the same go into `conf` of a REST call."""
    return {
        "tables": Param(
            [],
            type=["null", "array"],  # the form marks what can't be null as something that must be filled in
            items={"type": "string", "pattern": _TABLE},
            maxItems=1000,
            title="Tables",
            description="schema.name, one a line; empty: all of this DAG. Named tables run even when nothing is new.",
        ),
        "full_refresh": Param(
            False,
            type=["null", "boolean"],
            title="Full refresh",
            description="Rebuild from all landing files; readers see the old table until the new one is there.",
        ),
        "all": Param(
            False,
            type=["null", "boolean"],
            title="All tables",
            description="All tables of this DAG are meant, with news or not; a full refresh without tables needs it.",
        ),
        "action": Param(
            "run",
            type=["null", "string"],
            enum=["run", "verify", "replay"],
            title="Action",
            description="run loads; verify compares replicas with their changes; replay tries the quarantine again.",
        ),
        "from": _moment("From", "Run tables with landing files last modified from this moment on, taken or not."),
        "to": _moment("To", "The same, before this moment. What was loaded is not loaded twice."),
    }


def documentation(pipeline: Pipeline) -> str:
    """The DAG's page. That of a pack names no table: it would change with every row."""
    what = f"`{pipeline.tables[0]}`" if pipeline.tables else "a pack of tables"
    facts = f"source **{pipeline.source}**, tier **{pipeline.tier}**, priority **{pipeline.priority}**"
    if pipeline.timing.kind == "continuous":
        return "\n".join([f"Brings {what} into Delta Lake: {facts}.", "", *_CONTINUOUS])
    lines = [
        f"Brings {what} into Delta Lake: {facts}.",
        "",
        "- **landed** looks which tables have new files, or changed rows. Where none has, the rest is skipped.",
        "- **initial_load** loads those that have no replica yet.",
        "- **incremental_load** brings the others up to date.",
        *(_MAPPED if pipeline.view == "mapped" else ()),
        "",
        "**Rerun**: trigger it; *Tables* names some alone, *Full refresh* rebuilds them from their files.",
        "",
        "**After a failure**: the task's log names each table, what is wrong and the way out. Retry or clear it: it",
        "resumes where it stopped, and loads nothing twice.",
        "",
        "**Results**: a line for each table in the log, a summary in XCom, an event of the table's asset.",
    ]
    return "\n".join(lines)


_MAPPED = (
    "- **table** shows each table that had work: red with the reason, or green. Clear one to load that table alone.",
)
_CONTINUOUS = (
    "- **continuous_load** keeps one job alive that takes files as they land. It is started again when its hours are",
    "  over or when it fails, ever later. Rows that change reach it while it runs.",
    "",
    "**Stop**: pause the DAG, then mark the task: the job finishes the batch that it is at.",
    "",
    "**Rerun**: trigger it with *Tables*, *Full refresh* and the like, and mark the running task: that run comes next.",
    "",
    "**A table that fails** is tried again, ever later, while the others go on; the status page names it.",
)


def _moment(title: str, description: str) -> Param:
    schema: dict[str, Any] = {"type": ["null", "string"], "format": "date-time", "pattern": _MOMENT}
    return Param(None, title=title, description=description, **schema)
