"""Access control by Airflow's authentication and authorisation, checked for each request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep

QUARANTINE = "GDDL Quarantine"
"""The resource that users must be allowed to read, to see rows in quarantine."""
__all__ = ["GetUserDep", "may_read", "may_read_data", "may_read_quarantine", "may_trigger", "readable"]


def readable(user: Any, dag_ids: Iterable[str]) -> set[str]:
    """The DAGs that the user may read."""
    by_team: dict[str | None, set[str]] = {}
    wanted = set(dag_ids)
    teams = _teams(wanted)
    for dag_id in wanted:
        by_team.setdefault(teams.get(dag_id), set()).add(dag_id)
    found: set[str] = set()
    for team, ids in by_team.items():
        # Only Airflow with teams knows the argument, and only it has any.
        of_team = {} if team is None else {"team_name": team}
        found |= get_auth_manager().filter_authorized_dag_ids(dag_ids=ids, user=user, method="GET", **of_team)
    return found


def may_read(user: Any, dag_id: str | None) -> bool:
    """Null: of a table that no DAG loads, for which the user must be allowed to read any DAG."""
    return _may(user, "GET", None, dag_id)


def may_read_data(user: Any, dag_id: str | None) -> bool:
    """Logs may show rows; users who may read task logs may see them."""
    return _may(user, "GET", DagAccessEntity.TASK_LOGS, dag_id)


def may_read_quarantine(user: Any, dag_id: str | None) -> bool:
    """Rows in quarantine are data, for users with a permission of its own, `QUARANTINE`, beside the table's DAG.

    Airflow's simple auth manager has roles only: there they are for those who may trigger the DAG.
    """
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import (  # noqa: PLC0415 - imported when needed
        SimpleAuthManager,
    )

    manager = get_auth_manager()
    if not may_read(user, dag_id):
        return False
    if type(manager).is_authorized_custom_view is SimpleAuthManager.is_authorized_custom_view:
        return _may(user, "POST", DagAccessEntity.RUN, dag_id)
    return bool(manager.is_authorized_custom_view(method="GET", resource_name=QUARANTINE, user=user))


def may_trigger(user: Any, dag_id: str) -> bool:
    return _may(user, "POST", DagAccessEntity.RUN, dag_id)


def _may(user: Any, method: Any, entity: DagAccessEntity | None, dag_id: str | None) -> bool:
    details = None
    if dag_id is not None:
        team = _teams({dag_id}).get(dag_id)
        details = DagDetails(id=dag_id) if team is None else DagDetails(id=dag_id, team_name=team)
    return bool(get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user))


def _teams(dag_ids: set[str]) -> dict[str, str | None]:
    """The teams of DAGs, where Airflow is configured to have any."""
    from airflow.configuration import conf  # noqa: PLC0415 - only the API server comes here
    from airflow.models.dag import DagModel  # noqa: PLC0415 - imported when needed

    lookup = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)
    if lookup is None or not conf.getboolean("core", "multi_team", fallback=False):
        return {}
    found: dict[str, str | None] = lookup(list(dag_ids))
    return found
