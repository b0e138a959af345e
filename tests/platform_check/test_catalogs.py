"""Tables that are registered in Glue's catalog, read by Athena, and removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import CatalogSpec, ProbeSkippedError
from airflow_gddl.platform_check import catalog_checks
from airflow_gddl.platform_check.checks import CHECKS as KNOWN
from airflow_gddl.platform_check.checks import NotTriedError, Outcome
from airflow_gddl.platform_check.glue_entries import GlueEntries
from tests.platform_check import aws_services
from tests.platform_check.aws_services import Services
from tests.platform_check.conftest import KEYS
from tests.platform_check.ground import Ground, outcomes

pytest.importorskip("boto3")
DENIED = "AccessDeniedException"
WANTED = ("catalog.answer", "job.load", "catalog.register", "tables.athena")


@contextmanager
def with_catalog(ground: Ground) -> Iterator[tuple[Ground, Services]]:
    with aws_services.serving(ground.environ) as services:
        catalog = {"kind": "glue", "region": "us-east-1", "endpoint": services.url}
        environ = {**ground.environ, "AWS_ENDPOINT_URL_ATHENA": services.url}
        yield replace(ground, settings={"catalogs": {"main": catalog}}, environ=environ), services


def states(found: dict[str, Outcome]) -> dict[str, str]:
    return {name: one.reason or one.state for name, one in found.items()}


def test_a_table_is_registered_read_by_athena_and_removed(bucket_ground: Ground) -> None:
    with with_catalog(bucket_ground) as (ground, services):
        made = ground.context()
        found = outcomes(made, *WANTED)
        assert [one.line for one in found.values() if one.state != "PASS"] == []
        assert re.fullmatch(r"1\d rows are those of the source", found["tables.athena"].finding)
        (query,) = services.queries.values()
        assert query["ResultConfiguration"]["OutputLocation"].startswith(f"{made.place.root}/")
        assert services.databases == {}
        assert list(made.store.list(made.place.lake)) == []


@pytest.mark.parametrize(
    ("faults", "check", "cause"),
    [
        ({"forgets": True}, "catalog.register", ""),
        ({"refuses": {"CreateTable": DENIED}}, "catalog.register", "CATALOG_DENIED"),
        ({"refuses": {"GetTables": DENIED}}, "catalog.register", "CATALOG_DENIED"),
        ({"loses": True}, "tables.athena", ""),
        ({"refuses": {"StartQueryExecution": DENIED}}, "tables.athena", "CATALOG_DENIED"),
        ({"refuses": {"DeleteDatabase": DENIED}}, "cleanup", ""),
        ({"refuses": {"DeleteTable": DENIED}}, "cleanup", ""),
    ],
)
def test_what_the_services_refuse_or_get_wrong_is_found(
    faults: dict[str, Any], check: str, cause: str, bucket_ground: Ground
) -> None:
    with with_catalog(bucket_ground) as (ground, services):
        for name, value in faults.items():
            setattr(services, name, value)
        found = outcomes(ground.context(), "catalog.register", "tables.athena")
        (bad,) = (one for one in found.values() if one.state == "FAIL")
        assert (bad.check, bad.code, bad.cause) == (check, KNOWN[check].code, cause), bad
        assert bool(services.databases) == (check == "cleanup")
        if check == "cleanup":
            (database,) = services.databases
            assert f"Remove it with `aws glue delete-database --name {database}`" in bad.finding


@pytest.mark.parametrize("kind", ["hive", "other"])
def test_entries_that_can_not_be_removed_are_not_made(kind: str, ground: Ground) -> None:
    """Of a metastore that Spark alone knows, and of a kind of another package."""
    made = replace(ground, settings={"catalogs": {"main": {"kind": "hive"}}}).context()
    made = replace(made, loaded=replace(made.loaded, catalogs={"main": CatalogSpec(kind=kind)}))
    found = outcomes(made, "catalog.register", "tables.athena")
    assert states(found) == {"catalog.register": "registration", "tables.athena": "no-glue", "cleanup": "PASS"}


def test_without_a_catalog_nothing_is_registered(ground: Ground) -> None:
    found = outcomes(ground.context(), "catalog.answer", "catalog.register")
    assert states(found) == {"catalog.answer": "no-catalog", "catalog.register": "no-catalog", "cleanup": "PASS"}


def test_a_query_that_does_not_end_is_stopped_at_the_time_limit(ground: Ground) -> None:
    with aws_services.serving(ground.environ) as services:
        services.state = "RUNNING"
        catalog = CatalogSpec(kind="glue", region="us-east-1", endpoint=services.url)
        environ = {**KEYS, "AWS_ENDPOINT_URL_ATHENA": services.url}
        with pytest.raises(NotTriedError, match="time"):
            GlueEntries(catalog, "d", environ).query("SELECT 1", "s3://b/x", 0.1)
        assert services.stopped == list(services.queries)


def test_a_catalog_that_was_not_tried_does_not_pass(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that can't be tried from here, nor one that refuses this machine and may take jobs elsewhere."""
    catalogs = {name: {"kind": "glue", "region": "us-east-1"} for name in ("a", "b")}
    made = replace(ground, settings={"catalogs": catalogs}).context()
    remote = replace(made, loaded=replace(made.loaded, runner="glue"))
    answers: list[Exception | None] = []

    def probe(*_: object) -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(catalog_checks, "probe_catalog", probe)
    answers += [None, ProbeSkippedError("its driver is not here")]
    found = outcomes(made, "catalog.answer")["catalog.answer"]
    assert (found.state, found.reason, found.finding) == (
        "NOT TRIED",
        "not-from-here",
        "1 of 2: its driver is not here",
    )
    answers += [FatalError("CATALOG_DENIED", "no right"), None]
    found = outcomes(remote, "catalog.answer")["catalog.answer"]
    assert (found.state, found.reason) == ("NOT TRIED", "not-from-here")
    assert "CATALOG_DENIED" in found.finding
    answers += [None, FatalError("CATALOG_DENIED", "no right")]
    assert outcomes(made, "catalog.answer")["catalog.answer"].cause == "CATALOG_DENIED"
    answers += [None, None]
    assert outcomes(remote, "catalog.answer")["catalog.answer"].state == "PASS"
