"""Ids of the jobs that tasks start."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from airflow.sdk import Context


def job_id(of: str, context: Context) -> str:
    """Sorts by time, and differs from try to try.

    Args:
        of: distinguishes the jobs of a run.
    """
    attempt = f"{of} {context['run_id']} {context['ti'].try_number}"
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{hashlib.sha256(attempt.encode()).hexdigest()[:8]}"
