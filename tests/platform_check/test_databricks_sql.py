"""A table that is read in a SQL warehouse of the fake workspace: by the SDK, over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("databricks.sdk")

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.platform_check import course, databricks_sql
from airflow_gddl.platform_check.checks import FoundError, NotTriedError, Outcome
from airflow_gddl.platform_check.command import announcement
from airflow_gddl.platform_check.job_checks import JobChecks
from airflow_gddl.platform_check.place import CheckContext
from airflow_gddl.runners.child import Stopped
from airflow_gddl.runners.interface import FromEnvironment
from devtools.fake_databricks.workspace import Refusal
from tests.platform_check.catalogs import in_workspace
from tests.platform_check.ground import Ground, outcomes

WAREHOUSE = "DATABRICKS_WAREHOUSE_ID"
CHECK = "tables.databricks_sql"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databricks_sql, "POLL_SECONDS", 0.01)


def found(made: CheckContext) -> Outcome:
    return outcomes(made, "catalog.register", CHECK)[CHECK]


def named(made: CheckContext, warehouse: str) -> CheckContext:
    return replace(made, cli=replace(made.cli, environ={**made.cli.environ, WAREHOUSE: warehouse}))


def test_each_row_is_read_in_a_warehouse_that_runs(ground: Ground) -> None:
    with in_workspace(ground, off="STOPPED", on="RUNNING", going="STOPPING") as (made, sql):
        one = found(made)
        assert one.state == "PASS", one
        assert re.fullmatch(r"1\d rows are those of the source", one.finding), "more than a chunk"
        assert sql.started == []
        assert len(sql.statements) == 1


def test_a_stopped_warehouse_is_started_only_if_it_is_named(ground: Ground) -> None:
    with in_workspace(ground, off="STOPPED", other="STARTING") as (made, sql):
        one = found(made)
        assert (one.state, one.reason, one.finding) == ("NOT TRIED", "no-warehouse", "2 are there")
        assert (sql.started, sql.statements) == ([], {})
        assert found(named(made, "off")).state == "PASS"
        assert sql.started == ["off"]


@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [(403, "PERMISSION_DENIED", "PLATFORM_REFUSED"), (500, "INTERNAL_ERROR", "PLATFORM_UNREACHABLE")],
)
def test_what_the_workspace_refuses_is_found(status: int, code: str, cause: str, ground: Ground) -> None:
    with in_workspace(ground, on="RUNNING") as (made, sql):

        def refuse(*_: object) -> None:
            raise Refusal(status, code, "as asked")

        sql.answer = refuse
        one = found(made)
        assert (one.state, one.code, one.cause) == ("FAIL", "PLATFORM_DATABRICKS_SQL_DIFFERS", cause)


def test_an_unknown_warehouse_is_found(ground: Ground) -> None:
    with in_workspace(ground, on="RUNNING") as (made, _):
        one = found(named(made, "typo"))
        assert (one.state, one.cause) == ("FAIL", "PLATFORM_REFUSED")
        assert "typo is not a valid endpoint id" in one.finding


def test_a_name_of_the_metadata_stays_a_name(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_workspace(ground, on="RUNNING") as (made, _):
        checks = JobChecks(made)
        assert checks.register()
        odd = replace(made.loaded.catalogs["main"], catalog_name="a`.`b`.`c` UNION SELECT 1 -- ")
        checks.context = replace(made, loaded=replace(made.loaded, catalogs={"main": odd}))
        query = Mock(return_value=[])
        monkeypatch.setattr(databricks_sql, "query", query)
        with pytest.raises(FoundError):
            checks.databricks_sql()
        sql = query.call_args.args[1]
        assert " FROM `a``.``b``.``c`` UNION SELECT 1 -- `.`gddl_check_" in sql
        checks.close()
        checks.context = made
        assert course.removed(made).state == "PASS"


@contextmanager
def client(ground: Ground) -> Iterator[tuple[Any, Any]]:
    with in_workspace(ground, on="RUNNING") as (_, sql):
        yield databricks_sql.connect("local", {}, FromEnvironment()), sql


STATEMENT = "SELECT `a` FROM `lake`.`s`.`t`"


@pytest.mark.parametrize("stop", [None, Stopped(2), KeyboardInterrupt()])
def test_a_statement_that_does_not_end_is_cancelled(stop: BaseException | None, ground: Ground) -> None:
    """At the time limit, and where the command is stopped."""

    def sleep(_: float) -> None:
        if stop is not None:
            raise stop

    with client(ground) as (workspace, sql):
        sql.read, sql.hangs = lambda *_: [], True
        expected = NotTriedError if stop is None else type(stop)
        with pytest.raises(expected):
            databricks_sql.query(workspace, STATEMENT, "on", 0.3, sleep)
        (one,) = sql.statements.values()
        assert one.state.value == "CANCELED"


def test_a_statement_that_fails_says_why(ground: Ground) -> None:
    with client(ground) as (workspace, _), pytest.raises(FoundError, match="cannot be found"):
        databricks_sql.query(workspace, STATEMENT, "on", 60)


def test_empty_results_and_nulls_are_given_as_they_are(ground: Ground) -> None:
    with client(ground) as (workspace, sql):
        sql.read = lambda *_: []
        assert list(databricks_sql.query(workspace, STATEMENT, "on", 60)) == []
        sql.read = lambda *_: [{"a": None}, {"a": "x"}]
        assert list(databricks_sql.query(workspace, STATEMENT, "on", 60)) == [(None,), ("x",)]


def test_without_a_workspace_it_is_not_tried(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_HOST", raising=False)
    one = outcomes(ground.context(), CHECK)[CHECK]
    assert (one.state, one.reason) == ("NOT TRIED", "no-workspace")
    with in_workspace(ground, on="RUNNING") as (made, sql):
        bare = replace(made, loaded=replace(made.loaded, catalogs={}))
        assert outcomes(bare, CHECK)[CHECK].reason == "no-workspace"
        environ = {**made.cli.environ, "DATABRICKS_HOST": "https://another.example.com"}
        elsewhere = replace(made, cli=replace(made.cli, environ=environ))
        assert outcomes(elsewhere, CHECK)[CHECK].reason == "no-workspace", "it knows nothing of the catalog"
        assert outcomes(made, CHECK)[CHECK].reason == "failed", "the table was not registered"
        assert sql.statements == {}


def test_without_a_login_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")
    with pytest.raises(FatalError) as caught:
        databricks_sql.connect("local", {}, FromEnvironment())
    assert caught.value.code == "CONNECTION_UNUSABLE"


def test_the_price_of_engines_is_said_first(bucket_ground: Ground) -> None:
    with in_workspace(bucket_ground, on="RUNNING") as (made, _):
        (text,) = announcement(made)[2:]
        which = "a SQL warehouse that runs already, which is charged as long as it runs; none is started"
        assert text == f"at most: one statement in {which}"
        (text,) = announcement(named(made, "off"))[2:]
        which = "the SQL warehouse off, which is started where it is stopped, and charged until it stops by itself"
        assert text == f"at most: one statement in {which}"
        glue = replace(made.loaded.catalogs["main"], kind="glue")
        (text,) = announcement(replace(made, loaded=replace(made.loaded, catalogs={"main": glue})))[2:]
        assert text.startswith("at most: a query of some kilobytes by Athena")
