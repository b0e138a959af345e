"""Checks on stand-ins of platforms: Glue behind boto3, and the fake workspace of Databricks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.platform_check.place import CheckContext
from airflow_gddl.runners.glue import jobs as glue
from airflow_gddl.runners.glue.jobs import jobs_of
from airflow_gddl.runners.glue.settings import GlueSettings
from tests.platform_check.ground import Ground
from tests.remote.glue_service import GlueService

GLUE: Mapping[str, Any] = {
    "role": "arn:aws:iam::123456789012:role/gddl",
    "script": "s3://code/gddl_glue.py",
    "wheel": "s3://code/airflow_gddl-0.1.0-py3-none-any.whl",
    "region": "eu-west-1",
    "local_roots": True,
}
_ENVIRON = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "GDDL_WITHOUT_SPARK": "",
}


class ForgetfulGlue(GlueService):
    """It tells of no runs, so that a second request with a token starts a second one."""

    def _GetJobRuns(self, **_: Any) -> Mapping[str, Any]:  # noqa: N802 - Glue's name
        return {"JobRuns": []}


class DeafGlue(GlueService):
    """It takes requests to stop, and runs go on."""

    def _BatchStopJobRun(self, **_: Any) -> Mapping[str, Any]:  # noqa: N802 - Glue's name
        return {"SuccessfulSubmissions": [], "Errors": []}


@dataclass(frozen=True)
class GlueConnections:
    service: GlueService

    def login(self, platform: str, name: str) -> Any:
        raise AssertionError(f"{platform}, {name}")

    def aws(self, name: str, service: str, region: str | None) -> Any:
        assert (service, region) == ("glue", "eu-west-1"), name
        return self.service.client()


@contextmanager
def on_glue(
    ground: Ground, kind: type[GlueService] = GlueService, *, holds_jobs: bool = True, minutes: float = 5.0
) -> Iterator[CheckContext]:
    """A context whose jobs are processes of a stand-in of Glue.

    Args:
        holds_jobs: they do nothing until they are stopped.
    """
    with mock.patch.dict(os.environ, _ENVIRON):
        service = kind(ground.root, holds_jobs=holds_jobs)
        settings = {"runner": "glue", "runners": {"glue": dict(GLUE)}}
        tiers = {"small": TierSpec(tasks="one")}
        client, own = service.client(), GlueSettings(**GLUE)
        glue.apply(client, glue.plan(client, jobs_of(tiers, own)), own.tags)
        try:
            made = replace(ground, settings={**settings, "tiers": {}}).context(minutes=minutes)
            yield replace(made, connections=GlueConnections(service))
        finally:
            service.close()


@contextmanager
def on_workspace(ground: Ground, *, minutes: float = 5.0, sql: Any = None) -> Iterator[CheckContext]:
    """A context whose jobs are processes of the fake workspace.

    Args:
        sql: its warehouses.
    """
    from airflow_gddl.runners.databricks import jobs as databricks  # noqa: PLC0415 - needs its SDK
    from airflow_gddl.runners.databricks.access import DatabricksAccess  # noqa: PLC0415 - as above
    from airflow_gddl.runners.databricks.settings import DatabricksSettings  # noqa: PLC0415 - as above
    from airflow_gddl.runners.databricks.workspace import connect  # noqa: PLC0415 - as above
    from devtools.fake_databricks.server import serving  # noqa: PLC0415 - as above

    own = {"wheel": "/Volumes/main/gddl/airflow_gddl.whl", "node_type": "i3.xlarge", "local_roots": True}
    with serving([sys.executable, "-m", "spark_jobs.main"]) as server:
        server.sql = sql
        login = {"DATABRICKS_HOST": server.workspace.url, "DATABRICKS_TOKEN": server.token}
        with mock.patch.dict(os.environ, {**_ENVIRON, **login}):
            jobs = databricks.jobs_of({"small": TierSpec(tasks="one")}, DatabricksSettings(**own))
            workspace = connect(DatabricksAccess())
            databricks.apply(workspace, databricks.plan(workspace, jobs))
            settings = {**ground.settings, "runner": "databricks", "runners": {"databricks": own}, "tiers": {}}
            yield replace(ground, settings=settings).context(minutes=minutes)


@contextmanager
def on_emr(ground: Ground) -> Iterator[tuple[CheckContext, Callable[[], list[str]]]]:
    """A context whose jobs are requests to moto, and the states of its runs."""
    import boto3  # noqa: PLC0415 - of this stand-in alone
    import moto  # noqa: PLC0415 - as above
    from moto.core import DEFAULT_ACCOUNT_ID  # noqa: PLC0415 - as above
    from moto.emrserverless.models import emrserverless_backends  # noqa: PLC0415 - as above

    with mock.patch.dict(os.environ, _ENVIRON), moto.mock_aws():
        client = boto3.client("emr-serverless", region_name="eu-west-1")
        made = client.create_application(name="gddl", releaseLabel="emr-7.10.0", type="SPARK")["applicationId"]
        client.start_application(applicationId=made)
        own = {"execution_role": GLUE["role"], "entry_point": "s3://code/task.py", "region": "eu-west-1"}
        own |= {"application_id": made, "local_roots": True}
        settings = {"runner": "emr_serverless", "runners": {"emr_serverless": own}, "tiers": {}}
        runs = emrserverless_backends[DEFAULT_ACCOUNT_ID]["eu-west-1"].job_runs
        yield replace(ground, settings=settings).context(), lambda: [run.state for run in runs[made]]
