"""Codes of tasks, DAG files and alerts."""

from __future__ import annotations

from airflow_gddl.contract.codes.code import COUNTS, Code

DAG_IDS_TAKEN = Code(
    "DAG_IDS_TAKEN",
    "problem",
    "DAG files of two metadata folders build the same DAG ids",
    "set `dag_prefix` in the `gddl.yaml` of all but one",
)
DAG_PAUSED = Code(
    "DAG_PAUSED",
    "fatal",
    "a DAG that loads one of the tables is paused; none was triggered",
    "unpause it, then clear the task",
)
DEPENDENCY_FAILED = Code(
    "DEPENDENCY_FAILED",
    "fatal, retriable",
    "a table that this one depends on failed in the run",
    "fix that table; a retry takes both",
)
FRESHNESS_MISSED = Code(
    "FRESHNESS_MISSED", "warning", "the table exceeds its freshness limit", "see its page for what it waits for"
)
LOAD_FAILED = Code(
    "LOAD_FAILED",
    "warning",
    "the table failed in several consecutive runs (`alert_failed_runs`)",
    "look up the last failure's code in the message",
)
MAINTENANCE_DUE = Code(
    "MAINTENANCE_DUE",
    "warning",
    "a large table was not maintained for 14 days and 100 runs",
    "unpause `gddl_maintenance`, or `gddl maintain --table T`",
    ("maintain",),
    judged=True,
)
METADATA_INVALID = Code("METADATA_INVALID", "warning", "a file or setting of the metadata is invalid")
NOTIFIER_UNREACHABLE = Code(
    "NOTIFIER_UNREACHABLE",
    "retriable",
    "a notifier's service does not answer, or refuses the message",
    "check its connection and network; the next run sends it",
)
OPTION_INVALID = Code("OPTION_INVALID", "fatal", "an option, argument or form field has an invalid value")
PIPELINE_UNKNOWN = Code(
    "PIPELINE_UNKNOWN",
    "fatal",
    "the metadata no longer has the DAG's pipeline",
    "nothing, if its tables moved to another pack",
)
QUARANTINE_RATE = Code(
    "QUARANTINE_RATE",
    "warning",
    "more rows are in quarantine than `alert_quarantine_rate` allows",
    "`gddl errors list` names the cause and commands: replay, or dismiss",
    COUNTS,
    judged=True,
)
QUEUE_UNREACHABLE = Code(
    "QUEUE_UNREACHABLE",
    "retriable",
    "the event queue can't be read; landing folders are listed instead",
    "check `[gddl] events_queue`, region and rights",
)
ROWS_MISSING = Code(
    "ROWS_MISSING",
    "warning",
    "rows were read, but neither loaded, known nor quarantined",
    "verify the table; report it to the maintainers",
)
RUN_TIMEOUT = Code(
    "RUN_TIMEOUT",
    "retriable",
    "a task reached its time limit; a retry resumes where it stopped",
    "raise `run_timeout`, or use a larger tier",
)
SOURCE_STOPPED = Code(
    "SOURCE_STOPPED",
    "warning",
    "nothing has come from the source's log for longer than `freshness`",
    "check the CDC task, replication slot and [heartbeat](monitoring.md#completeness)",
    (),
    judged=True,
)
STATE_CONTENDED = Code(
    "STATE_CONTENDED",
    "retriable",
    "other processes kept changing a pipeline's state or a cut's document",
    "nothing; the next run writes it",
)
