"""Suggestions while the demo's Airflow is running."""

from __future__ import annotations

import json

from airflow_gddl.cli.demo_folder import DemoFolder

_TABLE = "nyc.flights"
_DAG = f"gddl.{_TABLE}"


def next_steps(url: str, place: DemoFolder, metadata: str) -> list[str]:
    """Lines with commands for copying."""
    body = json.dumps({"logical_date": None, "conf": {"full_refresh": True}})
    replica = place.lake.joinpath(*_TABLE.split("."))
    return [
        "",
        f"The UI is at {url}; no user, no password: it listens on this machine alone. Try:",
        f"- Rerun a table: {url}/dags/{_DAG}, Trigger, Full refresh; of a pack, name the tables.",
        "- The same over REST:",
        f'  TOKEN=$(curl -s {url}/auth/token | sed \'s/.*access_token":"//; s/".*//\')',
        f'  curl -s {url}/api/v2/dags/{_DAG}/dagRuns -H "Authorization: Bearer $TOKEN" \\',
        f"    -H 'Content-Type: application/json' -d '{body}'",
        f"- Change {metadata}/tables/nyc.yaml: add a row, disable or break one. The UI shows it within half a minute.",
        f"- Read a table: {replica} is Delta; beside it stand its __changes and __errors.",
        f"- Airflow's own command: AIRFLOW_HOME={place.airflow} airflow dags list",
        "Ctrl-C stops it.",
    ]
