"""Tries of a load whose tables failed: an error that a retry can't help is not tried again."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.result import error_info
from tests.airflow.stage import Stage
from tests.airflow.test_mapped import run as mapped_run
from tests.airflow.test_mapped import states
from tests.airflow.test_run import run

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
REFUSED = ["SCHEMA_REFUSED", "[SCHEMA_REFUSED] n is text now. Remedy: widen it."]
BUSY = ["TABLE_BUSY", "[TABLE_BUSY] another run holds it. Remedy: run again."]
NAMES = ["shop.a", "shop.b", "shop.c"]


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__RETRIES", "1")
    stage.rows(*(f"{{table: {name}, keys: [id]}}" for name in NAMES))
    for name in NAMES:
        stage.land(name)


def test_a_load_is_not_retried_if_no_table_can_succeed(stage: Stage) -> None:
    stage.order(fail={"shop.b": REFUSED}, fatal=["shop.b"])
    assert run()["initial_load"] == "failed"
    assert stage.loaded == [NAMES]


def test_it_is_retried_if_one_may_succeed(stage: Stage) -> None:
    stage.order(fail={"shop.b": REFUSED, "shop.c": BUSY}, fatal=["shop.b"])
    assert run()["initial_load"] == "failed"
    assert stage.loaded == [NAMES, ["shop.b", "shop.c"]]


def test_a_table_that_depends_on_one_that_can_t_succeed_can_t_either(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], depends_on: [shop.a]}")
    stage.order(fail={"shop.a": REFUSED}, fatal=["shop.a"])
    assert run()["initial_load"] == "failed"
    assert stage.loaded == [["shop.a"]]


def test_mapped_instances_show_it_after_one_try(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", "mapped")
    stage.order(fail={"shop.b": REFUSED}, fatal=["shop.b"])
    found = states(mapped_run())
    assert stage.loaded == [NAMES]
    assert [found[name] for name in NAMES] == ["success", "failed", "success"]


@pytest.mark.parametrize(
    ("error", "fatal"),
    [
        (FatalError("SCHEMA_REFUSED", "n is text now"), True),
        (RetriableError("TABLE_BUSY", "another run holds it"), False),
        (FatalError("UNEXPECTED", "a fault that nobody has foreseen"), False),
        (FatalError("S3_CREDENTIALS_EXPIRED", "the role's session is over"), False),
        (FatalError("OUT_OF_MEMORY", "Java heap space"), False),
    ],
)
def test_a_result_says_whether_a_retry_may_help(error: GddlError, fatal: bool) -> None:
    assert (error_info(error).code, error_info(error).fatal) == (error.code, fatal)
