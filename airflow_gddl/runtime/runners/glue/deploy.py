"""Creates and updates saved Glue jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from airflow_gddl.metadata.runners.glue import GlueSettings
from airflow_gddl.runtime.runners.aws_errors import CLIENT, code_of, translated
from airflow_gddl.runtime.runners.changes import JobChange, differences
from airflow_gddl.runtime.runners.connections import Connections
from airflow_gddl.runtime.runners.glue.jobs import Definition

# Defined completely by the metadata: other entries are removed.
_WHOLE = frozenset({"DefaultArguments"})


def connect(settings: GlueSettings, connections: Connections) -> Any:
    """boto3's client.

    Raises:
        GddlError: as `aws_errors.translated`.
    """
    with translated("Glue"):
        session = connections.aws(settings.aws_conn_id, settings.region)
        return session.client("glue", region_name=settings.region, config=CLIENT)


def plan(client: Any, wanted: Mapping[str, Definition]) -> list[JobChange[Definition]]:
    """Plan the change of each job, without changing anything. Jobs that are no longer wanted are kept.

    Raises:
        GddlError: as `aws_errors.translated`.
    """
    return [_planned(client, name, definition) for name, definition in wanted.items()]


def _planned(client: Any, name: str, wanted: Definition) -> JobChange[Definition]:
    with translated("Glue"):
        try:
            actual = client.get_job(JobName=name)["Job"]
        except ClientError as error:
            if code_of(error) != "EntityNotFoundException":
                raise
            return JobChange(name=name, wanted=wanted, exists=False)
    return JobChange(name=name, wanted=wanted, exists=True, fields=tuple(differences(wanted, actual, _WHOLE)))


def apply(client: Any, changes: Iterable[JobChange[Definition]], tags: Mapping[str, str]) -> None:
    """Create and update jobs. After an error, earlier changes stay; run it again.

    Args:
        tags: of created jobs.

    Raises:
        GddlError: as `aws_errors.translated`.
    """
    for change in changes:
        with translated("Glue"):
            if change.action == "create":
                client.create_job(**change.wanted, Tags=dict(tags))
            elif change.action == "update":
                update = {name: value for name, value in change.wanted.items() if name != "Name"}
                client.update_job(JobName=change.name, JobUpdate=update)
