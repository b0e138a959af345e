"""Buttons on a task's page."""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_gddl.version_compat import conf


class JobLogLink(BaseOperatorLink):
    """Where the log of the task's last job is: a file on the worker, or the runner's own page."""

    name = "Job log"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:  # noqa: ARG002 - Airflow's signature
        """Empty when no job was started."""
        place = getattr(operator, "job_log", None)
        if not place:
            return ""
        return str(place) if "://" in place else f"file://{quote(place)}"


class AssetsLink(BaseOperatorLink):
    """Airflow's page of the tables' assets, their events and who listens."""

    name = "Assets"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:  # noqa: ARG002 - Airflow's signature
        base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
        loaded: tuple[str, ...] = getattr(operator, "loaded", ())
        search = f"?name_pattern={quote(loaded[0])}" if len(loaded) == 1 else ""
        return f"{base}/assets{search}"
