"""What Airflow is told of this package; imports nothing of it, since Airflow asks early and often."""

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
metadata_copy (string) =
  Lake that keeps the last good copy of the metadata, for containers that are replaced. Empty: GDDL_LAKE, if set.
refresh_seconds (float) = 30
  Metadata in an object store is listed no more often than this.
events_queue (string) =
  URL of an SQS queue that gets the landing bucket's events. Empty: landing folders are listed.
full_listing_seconds (float) = 3600
  With a queue: landing folders are listed all the same after this time.
poll_seconds (float) = 60
  Time between two looks of pipelines that wait for others.
dependency_wait_seconds (float) = 300
  How long a run with nothing else to do waits for tables of depends_on.
continuous_hours (float) = 6
  How long a job of a continuous pipeline lives, so that logs end and new code is picked up. 0: no end.
continuous_retries (integer) = 10
  Tries of a continuous pipeline's task after the first, ever later ones.
continuous_retry_seconds (float) = 10
  Time before the first of them; it doubles, to ten minutes at most.
run_poll_seconds (float) = 5
  Time between the first looks at a run elsewhere; it grows twelvefold.
claim_wait_seconds (float) = 90
  How long a job waits for a table that another run holds.
job_command (string) =
  The embedded job's program and first arguments, a JSON list. Empty: this Python.
sensor_pool (string) = default_pool
  Pool of the sensors; loads use the pools of their tiers.
retries (integer) = 2
  Tries of a failed task after the first.
retry_delay_seconds (float) = 60
  Time between two tries.
owner_links (string) =
  Where the owners of tables are to be found: a JSON object of http, https or mailto URLs by owner.
paused_upon_creation (boolean) = False
  Whether new DAGs start paused.
alert_notifiers (string) =
  Whom to tell of late, failing or damaged tables: a JSON list of notifiers. Empty: the webhook, if any.
alert_quarantine_rate (float) = 0.01
  Share of a run's rows that may be put aside before somebody is told.
maintenance_schedule (string) = @daily
  Schedule of gddl_maintenance, a preset or cron. Empty: by hand.
verify_schedule (string) = @weekly
  Schedule of gddl_verify, a preset or cron. Empty: by hand.
watch_schedule (string) = */10 * * * *
  Schedule of gddl_watch, which is there where alerts have a way. Empty: by hand.
notify_connection (string) =
  Connection of a webhook to tell of failures and late runs. Empty: nobody.
"""
"""An option, its type and its default on a line, and what it is for on the lines below."""
_HEAD = re.compile(r"(?P<name>\w+) \((?P<type>\w+)\) =(?: (?P<default>.*))?")


def _options() -> dict[str, dict[str, Any]]:
    """As Airflow wants them."""
    found: dict[str, dict[str, Any]] = {}
    for line in _TEXT.splitlines():
        head = _HEAD.fullmatch(line)
        if head is not None:
            told = {"type": head["type"], "default": head["default"] or "", "description": ""}
            option = found[head["name"]] = {**told, "version_added": "0.1.0", "example": None}
        else:
            option["description"] = f"{option['description']} {line.strip()}".strip()
    return found


_OPTIONS = _options()
_OPERATORS = ("load", "continuous", "maintenance", "watch", "find", "table")
DEFAULTS = {name: option["default"] for name, option in _OPTIONS.items()}


def get_provider_info() -> dict[str, Any]:
    """The `apache_airflow_provider` entry point."""
    return {
        "package-name": "airflow-gddl",
        "name": _NAME,
        "description": "Bring database tables into Delta Lake from CDC files, by metadata.",
        "integrations": [{"integration-name": _NAME, "external-doc-url": "", "tags": ["software"]}],
        "operators": [
            _modules(*(f"airflow_gddl.operators.{name}" for name in _OPERATORS)),
        ],
        "sensors": [_modules("airflow_gddl.sensors.tables")],
        "triggers": [
            _modules("airflow_gddl.triggers.tables", "airflow_gddl.triggers.files", "airflow_gddl.triggers.runs")
        ],
        "extra-links": ["airflow_gddl.links.jobs.JobLogLink", "airflow_gddl.links.jobs.AssetsLink"],
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
