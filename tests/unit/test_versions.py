"""Which Delta goes with which Spark, decided before anything is fetched."""

from __future__ import annotations

import re

import pytest

from airflow_gddl.contract import spark_versions as versions
from airflow_gddl.contract.errors import FatalError


@pytest.mark.parametrize(
    ("spark", "delta", "artifact"),
    [
        ("4.0.2", "4.0.1", "io.delta:delta-spark_2.13:4.0.1"),
        ("4.0.2", "4.2.0", "io.delta:delta-spark_4.0_2.13:4.2.0"),
        ("4.1.1", "4.2.0", "io.delta:delta-spark_4.1_2.13:4.2.0"),
        ("4.1.4", "4.4.0", "io.delta:delta-spark_4.1_2.13:4.4.0"),
        ("4.2.0", "4.4.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        ("4.2.7", "4.4.9", "io.delta:delta-spark_4.2_2.13:4.4.9"),  # patches to come
        ("4.3.0", "4.5.0", "io.delta:delta-spark_4.3_2.13:4.5.0"),  # series to come
    ],
)
def test_a_pair_that_fits_has_its_artifact(spark: str, delta: str, artifact: str) -> None:
    versions.check_spark(spark, "it", "choose")
    versions.check_pair(spark, delta, "choose")
    assert versions.artifact(spark, delta) == artifact


@pytest.mark.parametrize(
    ("spark", "delta", "says"),
    [
        (
            "4.2.0",
            "4.2.0",
            "Delta 4.2.0 has no build for Spark 4.2.0. Remedy: Spark 4.2.0 goes with Delta 4.4.0; choose",
        ),
        ("4.1.1", "4.0.1", "Delta 4.0.1 has no build for Spark 4.1.1. Remedy: Spark 4.1.1 goes with Delta 4.4.0"),
        (
            "4.1.4",
            "4.2.0",
            "Delta 4.2.0 does not run on Spark 4.1.4: it was built against 4.1.1. Remedy: Spark 4.1.4 goes",
        ),
        (
            "4.3.0",
            "4.4.0",
            "no Delta is known to run on Spark 4.3.0; the newest known pair is Spark 4.2 with Delta 4.4.0; choose",
        ),
        ("4.0.2", "3.3.2", "Delta 3.3.2 is not supported. Remedy: Spark 4.0.2 goes with Delta 4.4.0"),
        ("4.0.2", "5.0.0", "Delta 5.0.0 is not supported"),
    ],
)
def test_a_pair_that_does_not_is_named_with_one_that_does(spark: str, delta: str, says: str) -> None:
    with pytest.raises(FatalError) as caught:
        versions.check_pair(spark, delta, "choose")
    assert caught.value.code == "DELTA_UNSUPPORTED"
    assert says in str(caught.value)


def test_platform_builds_match_by_series() -> None:
    """EMR and Databricks carry patches of their own under a number that is not Apache's."""
    versions.check_pair("4.0.2-amzn-0", "4.0.0-amzn-1-spark", "")
    versions.check_pair("4.1.9-amzn-0", "4.2.0-amzn-0", "")


@pytest.mark.parametrize("spark", ["3.5.6", "5.0.0"])
def test_other_sparks_are_refused(spark: str) -> None:
    with pytest.raises(FatalError, match=rf"SPARK_UNSUPPORTED.*it is Spark {spark}.*from 4\.0 up to 5\.0: choose"):
        versions.check_spark(spark, "it", "choose")


@pytest.mark.parametrize(
    ("spark", "delta", "command"),
    [
        ("4.3.0", "4.1.0", "pip install 'pyspark==4.2.*' 'delta-spark==4.4.*'"),  # as uv chose from open bounds
        ("3.5.6", "3.3.2", "pip install 'pyspark==4.2.*' 'delta-spark==4.4.*'"),
    ],
)
def test_packages_that_do_not_fit_are_refused_with_the_command_that_installs_a_pair(
    spark: str, delta: str, command: str
) -> None:
    with pytest.raises(FatalError, match=re.escape(f"run `{command}` in the Python that runs the job")):
        versions.delta_of_packages(spark, delta)
    found = [series.removesuffix(".*") for series in re.findall(r"==([\d.*]+)", command)]
    assert versions.delta_of_packages(f"{found[0]}.9", f"{found[1]}.0") == f"{found[1]}.0"


@pytest.mark.parametrize(
    ("spark", "delta", "jars"),
    [
        ("4.2.0", "4.0.1", "4.4.0"),
        ("4.2.0", "4.1.0", "4.4.0"),
        ("4.2.1", "4.1.0", "4.4.0"),  # resolvers choose it: delta-spark 4.4 ends at pyspark 4.2.0
        ("4.1.4", "4.2.0", "4.4.0"),
        ("4.1.1", "4.2.0", "4.2.0"),
    ],
)
def test_the_jars_run_on_the_spark_whatever_the_package_is(spark: str, delta: str, jars: str) -> None:
    """pip under Amazon's pins for Airflow 3.3.1 chose pyspark 4.2.0 with delta-spark 4.0.1, which jobs refused."""
    assert versions.delta_of_packages(spark, delta) == jars
