"""Airflow's trigger form and doc page of a pipeline."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_gddl.topology import Pipeline

_PART = r"[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}"
_TABLE = rf"^([A-Za-z0-9_][A-Za-z0-9_.-]{{0,63}}:)?{_PART}\.{_PART}$"
"""A target, `schema.name` in the source, or `source:schema.name`: see `TableNames`."""
# `format` is not validated where no RFC 3339 validator is installed; the form's date picker uses it.
_MOMENT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"


_ACTIONS = {
    "run": "Load what has landed",
    "verify": "Verify: compare the replica with its change table",
    "replay": "Replay: process quarantined rows again",
    "reload": "Reload: load again from the files that are there, and from nothing else",
}


def params(*, one_table: bool = False) -> dict[str, Param]:
    """The form's fields, those that rebuild tables last; the same go into `conf` of a REST call.

    Args:
        one_table: of a DAG for one table, which needs no choice of tables. `conf` may name the table all the same.
    """
    fields = {
        "tables": Param(
            [],
            type=["null", "array"],  # the form marks non-nullable fields as required
            items={"type": "string", "pattern": _TABLE},
            maxItems=1000,
            title="Tables",
            description="schema.name or source:schema.name, one a line; empty: all of this DAG. Named tables run even "
            "without new files.",
        ),
        "action": Param(
            "run",
            type=["null", "string"],
            enum=list(_ACTIONS),
            values_display=_ACTIONS,
            title="Action",
            description="Verify and replay load no new files. A reload archives what no file holds.",
        ),
        "codes": Param(
            [],
            type=["null", "array"],
            items={"type": "string", "pattern": "^[A-Z][A-Z0-9_]{3,63}$"},
            maxItems=100,
            title="Codes",
            description="Replay processes only rows quarantined with these codes, one a line; empty: all.",
        ),
        "from": _moment("From", "Run tables with files modified at or after this moment, loaded before or not."),
        "to": _moment("To", "The same, before this moment. What was loaded is not loaded twice."),
        **_repairs(),
    }
    return {name: field for name, field in fields.items() if not one_table or name not in {"tables", "all"}}


def windows() -> dict[str, Param]:
    """Fields of a verification by windows of time."""
    return {
        "since": Param(
            None,
            type=["null", "string"],
            pattern=r"^([1-9][0-9]{0,6}[smhd])?$",
            title="Since",
            description="Compare only rows that were changed in this time, e.g. 24h, by windows; empty: whole tables.",
        ),
        "by": Param(
            "hour", type=["null", "string"], enum=["hour", "day"], title="By", description="Length of a window."
        ),
    }


def _repairs() -> dict[str, Param]:
    """Fields that concern tables that are made again."""
    return {
        "full_refresh": Param(
            False,
            type=["null", "boolean"],
            title="Full refresh",
            description="Rebuild from the change table; no landing file is needed, and nothing is lost.",
        ),
        "all": Param(
            False,
            type=["null", "boolean"],
            title="All tables",
            description="Run all tables of this DAG, even without new files; needed to refresh or reload all.",
        ),
        "confirmed": Param(
            False,
            type=["null", "boolean"],
            title="Confirm the reload",
            description="Reload also where rows, columns or changes go; without it the run fails and says which.",
        ),
    }


def documentation(pipeline: Pipeline) -> str:
    """The DAG's doc page. A pack's page names no table, since it would change with every row."""
    what = f"`{pipeline.tables[0]}`" if pipeline.tables else "a pack of tables"
    if pipeline.is_retired:
        return _RETIRED
    facts = f"source **{pipeline.source}**, tier **{pipeline.tier}**, priority **{pipeline.priority}**"
    if pipeline.timing.kind == "continuous":
        return "\n".join([f"Brings {what} into Delta Lake: {facts}.", "", *_CONTINUOUS])
    lines = [
        f"Brings {what} into Delta Lake: {facts}.",
        "",
        "- **landed** finds tables with new files or changed rows. If there are none, the other tasks are skipped.",
        "- **initial_load** loads those that have no replica yet, **incremental_load** brings the others up to date:",
        "  side by side, neither waits for the other.",
        *(_MAPPED if pipeline.view == "mapped" else ()),
        "",
        _RERUN if pipeline.kind == "pack" else "**Rerun**: trigger it; *Full refresh* rebuilds the table.",
        "",
        "**After a failure**: the task's log names each failed table, the error and the remedy. Retry or clear it: it",
        "resumes where it stopped, and loads no file twice.",
        "",
        "**Results**: a line for each table in the log, a summary in XCom, an event of the table's asset.",
    ]
    return "\n".join(lines)


_RERUN = "**Rerun**: trigger it; *Tables* selects some of them, *Full refresh* rebuilds them."
_MAPPED = (
    "- **new_table** and **table** show each table that had work: red with the reason, or green. Clear one to load",
    "  that table alone.",
)
_RETIRED = """Other DAGs now load the tables of this DAG. It has no schedule; it exists to finish active runs and to
show its history. It is removed a week after the move or later. Rerun tables with `gddl_rerun`.
"""
_CONTINUOUS = (
    "- **continuous_load** keeps one job running that loads files as they land. It is restarted after its time limit",
    "  or a failure, with growing delays. Changed rows reach it while it runs.",
    "",
    "**Stop**: pause the DAG, then mark the task: the job finishes the batch that it is at.",
    "",
    "**Rerun**: trigger it with *Full refresh* and the like, and mark the running task: that run comes next.",
    "",
    "**A table that fails** is retried with growing delays while the others are loaded; the status page names it.",
)


def _moment(title: str, description: str) -> Param:
    schema: dict[str, Any] = {"type": ["null", "string"], "format": "date-time", "pattern": _MOMENT}
    return Param(None, title=title, description=description, **schema)
