"""Provider metadata for Airflow; imports nothing of this package, since Airflow loads it early and often."""

from __future__ import annotations

import re
from typing import Any

_NAME = "GDDL"
_TEXT = """\
metadata (string) =
  Metadata folder, local or s3://. Empty: GDDL_METADATA, else `metadata` near the DAG file.
aws_conn_id (string) =
  Connection that reaches S3: metadata, and roots whose gddl.yaml names none. Empty: environment or role.
cache_dir (string) =
  Local folder for compiled metadata. Empty: `gddl` in AIRFLOW_HOME.
refresh_seconds (float) = 30
  Metadata in an object store is listed no more often than this.
events_queue (string) =
  URL of an SQS queue that gets the landing bucket's events. Empty: landing folders are listed.
poll_seconds (float) = 60
  Time between two polls of pipelines that wait for others.
dependency_wait_seconds (float) = 300
  How long a run with nothing else to do waits for tables of depends_on.
continuous_hours (float) = 6
  Time limit of a continuous pipeline's job, so that logs end and new code is picked up. 0: none.
deferrable (boolean) = True
  Sensors, and tasks whose job runs elsewhere, wait in the triggerer. False: in their own process, with its slot.
job_command (string) =
  The embedded job's program and first arguments, a JSON list. Empty: this Python.
retries (integer) = 2
  Retries of a failed task.
retry_delay_seconds (float) = 60
  Delay between retries.
active_runs (integer) = 8
  Runs of a table's or pack's DAG at a time: requests for named tables run beside the schedule.
paused_upon_creation (string) =
  Whether new DAGs start paused. Empty: as [core] dags_are_paused_at_creation says.
alert_notifiers (string) =
  Notifiers for late, failing or damaged tables and invalid rows, as a JSON list. Empty: the webhook, if any.
alert_failed_runs (integer) = 2
  Consecutive runs in which a table fails before an alert is sent.
alert_quarantine_rate (float) = 0.01
  Share of a run's rows that may be quarantined before an alert is sent.
maintenance_schedule (string) = @daily
  Schedule of gddl_maintenance, a preset or cron. Empty: manual.
verify_schedule (string) = @weekly
  Schedule of gddl_verify, a preset or cron. Empty: manual.
watch_schedule (string) = */10 * * * *
  Schedule of gddl_watch, which exists where alerts are configured, and of gddl_new_tables. Empty: manual.
notify_connection (string) =
  Connection of a webhook to notify of failures. Empty: none.
"""
"""An option, its type and default on one line, its description on the lines below."""
_HEAD = re.compile(r"(?P<name>\w+) \((?P<type>\w+)\) =(?: (?P<default>.*))?")


def _options() -> dict[str, dict[str, Any]]:
    """The options in Airflow's format."""
    options: dict[str, dict[str, Any]] = {}
    for line in _TEXT.splitlines():
        head = _HEAD.fullmatch(line)
        if head is not None:
            fields = {"type": head["type"], "default": head["default"] or "", "description": ""}
            option = options[head["name"]] = {**fields, "version_added": "0.1.0", "example": None}
        else:
            option["description"] = f"{option['description']} {line.strip()}".strip()
    return options


_OPTIONS = _options()
DEFAULTS = {name: option["default"] for name, option in _OPTIONS.items()}


def get_provider_info() -> dict[str, Any]:
    """The `apache_airflow_provider` entry point."""
    return {
        "package-name": "airflow-gddl",
        "name": _NAME,
        "description": "Bring database tables into Delta Lake from CDC files, by metadata.",
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": "https://github.com/airflow-gddl/airflow-gddl",
                "tags": ["software"],
            }
        ],
        "operators": [
            _modules("airflow_gddl.operators.jobs"),
        ],
        "sensors": [_modules("airflow_gddl.sensors.tables", "airflow_gddl.sensors.loaded")],
        "triggers": [_modules("airflow_gddl.triggers")],
        "extra-links": [
            f"airflow_gddl.operators.jobs.{name}" for name in ("JobLogLink", "PlatformRunLink", "AssetsLink")
        ],
        "notifications": ["airflow_gddl.notifications.webhook.GddlNotifier"],
        "config": {
            "gddl": {
                "description": "Options of airflow-gddl.",
                "options": _OPTIONS,
            }
        },
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": _NAME, "python-modules": list(names)}
