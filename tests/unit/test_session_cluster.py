"""What the driver of a cluster job tells spark-submit beyond what the runner said."""

from __future__ import annotations

import shlex
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import AnalysisException

from spark_jobs.spark.session import DELTA, configure, submitted
from spark_jobs.spark.session_settings import SessionSettings, is_on_a_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIVEN = "--master yarn --conf spark.app.name=mine --conf spark.sql.extensions=own pyspark-shell"
JARS = {"spark.jars": "/delta-a.jar,/delta-b.jar"}


def conf_of(arguments: list[str]) -> dict[str, str]:
    """As spark-submit reads it: the last one counts."""
    values = [after for before, after in pairwise(arguments) if before == "--conf"]
    return dict(value.split("=", 1) for value in values)


def test_given_settings_take_precedence() -> None:
    found = shlex.split(submitted(SessionSettings(cores=8), {"spark.app.name": "ours"}, {"PYSPARK_SUBMIT_ARGS": GIVEN}))
    assert shlex.join(found).endswith(GIVEN)
    conf = conf_of(found)
    assert conf["spark.sql.variable.substitute"] == "false"
    assert (conf["spark.app.name"], conf["spark.sql.extensions"]) == ("mine", "own")
    assert conf["spark.sql.catalog.spark_catalog"] == DELTA["spark.sql.catalog.spark_catalog"]
    assert conf["spark.databricks.delta.snapshotPartitions"] == "8"


def test_a_bare_job_is_sent_to_the_master_that_the_environment_names() -> None:
    found = shlex.split(submitted(SessionSettings(), {}, {"GDDL_SPARK_MASTER": "spark://h:7077"}))
    assert found[found.index("--master") + 1] == "spark://h:7077"
    assert found[-1] == "pyspark-shell"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--master yarn pyspark-shell", "/delta-a.jar,/delta-b.jar"),
        ("--master yarn --jars /own.jar pyspark-shell", "/delta-a.jar,/delta-b.jar,/own.jar"),
    ],
)
def test_the_users_jars_come_beside_deltas(given: str, expected: str) -> None:
    found = shlex.split(submitted(SessionSettings(), JARS, {"PYSPARK_SUBMIT_ARGS": given}))
    assert [after for before, after in pairwise(found) if before == "--jars"] == [expected]
    assert "spark.jars" not in conf_of(found)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"GDDL_SPARK_MASTER": "local[2]"}, False),
        ({"GDDL_SPARK_MASTER": "yarn"}, True),
        ({"PYSPARK_GATEWAY_PORT": "5"}, True),
        ({"SPARK_REMOTE": "sc://h"}, True),
    ],
)
def test_where_a_job_is(environ: dict[str, str], expected: bool) -> None:
    assert is_on_a_cluster(environ) is expected


class _Conf:
    """Settings of a session that refuses a name as often as said, as Spark does while Delta declares its own."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.values = refusals, dict[str, str]()

    def set(self, name: str, value: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise AnalysisException(f'[CANNOT_MODIFY_CONFIG] Cannot modify the value of the Spark config: "{name}"')
        self.values[name] = value


def test_a_setting_that_delta_is_still_declaring_is_set() -> None:
    late, never = _Conf(3), _Conf(1000)
    configure(cast("SparkSession", SimpleNamespace(conf=late)), {"a": "1", "b": "2"}, pause=0)
    assert late.values == {"a": "1", "b": "2"}
    with pytest.raises(AnalysisException):
        configure(cast("SparkSession", SimpleNamespace(conf=never)), {"a": "1"}, pause=0)
