"""The home of Airflow for the tests of this process, and settings that its tests need."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "airflow" / "fake_job.py"
_HOMES: list[tempfile.TemporaryDirectory[str]] = []
"""The folder, removed when the process ends."""


def set_up() -> None:
    """Set them, once a process. Airflow reads its configuration when it is first imported, which a test of any folder
    does at the latest when it is collected: it would use, and share, the home of the user.
    """
    if not _HOMES:
        _HOMES.append(tempfile.TemporaryDirectory(prefix="gddl-airflow-"))
    os.environ |= {
        "AIRFLOW_HOME": _HOMES[0].name,
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__GDDL__JOB_COMMAND": json.dumps([sys.executable, str(FAKE)]),
        "AIRFLOW__GDDL__RETRIES": "0",
        "AIRFLOW__GDDL__RETRY_DELAY_SECONDS": "0",
        "AIRFLOW__GDDL__POLL_SECONDS": "0.2",
        "AIRFLOW__GDDL__DEPENDENCY_WAIT_SECONDS": "0",
    }
