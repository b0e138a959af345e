"""Extra links of tasks."""

from __future__ import annotations

from urllib.parse import quote

from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_gddl.links.addresses import is_page, log_page
from airflow_gddl.version_compat import conf


class JobLogLink(BaseOperatorLink):
    """Log of the task's last job: on this package's page, or on the runner's."""

    name = "Job log"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:  # noqa: ARG002 - Airflow's signature
        """Empty when no job was started, or its log is not in the lake."""
        place = str(getattr(operator, "job_log", None) or "")
        return place if is_page(place) else log_page(_base(), place)


class AssetsLink(BaseOperatorLink):
    """Airflow's page of the tables' assets, with events and consumers."""

    name = "Assets"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:  # noqa: ARG002 - Airflow's signature
        loaded: tuple[str, ...] = getattr(operator, "loaded", ())
        search = f"?name_pattern={quote(loaded[0])}" if len(loaded) == 1 else ""
        return f"{_base()}/assets{search}"


def _base() -> str:
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
