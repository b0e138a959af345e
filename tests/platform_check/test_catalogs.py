"""Tables that are registered in Glue's catalog, read by Athena, and removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.platform_check.checks import CHECKS as KNOWN
from airflow_gddl.platform_check.checks import Outcome
from tests.platform_check import aws_services
from tests.platform_check.aws_services import Services
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
    ],
)
def test_what_the_services_refuse_or_get_wrong_is_found(
    faults: dict[str, Any], check: str, cause: str, bucket_ground: Ground
) -> None:
    from airflow_gddl.platform_check import course  # noqa: PLC0415 - with all outcomes, the removal of entries too

    with with_catalog(bucket_ground) as (ground, services):
        for name, value in faults.items():
            setattr(services, name, value)
        taken: list[Outcome] = []
        course.everything(ground.context(), taken.append, ("catalog.register", "tables.athena"))
        (bad,) = (one for one in taken if one.state == "FAIL")
        assert (bad.check, bad.code, bad.cause) == (check, KNOWN[check].code, cause), bad
        assert bool(services.databases) == (check == "cleanup")


def test_entries_that_can_not_be_removed_are_not_made(ground: Ground) -> None:
    catalog = {"kind": "unity", "url": "http://127.0.0.1:1", "catalog_name": "c", "token_env": None}
    made = replace(ground, settings={"catalogs": {"main": catalog}}).context()
    found = outcomes(made, "catalog.register", "tables.athena")
    assert states(found) == {"catalog.register": "registration", "tables.athena": "no-glue", "cleanup": "PASS"}


def test_without_a_catalog_nothing_is_registered(ground: Ground) -> None:
    found = outcomes(ground.context(), "catalog.answer", "catalog.register")
    assert states(found) == {"catalog.answer": "no-catalog", "catalog.register": "no-catalog", "cleanup": "PASS"}
