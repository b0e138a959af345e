"""Which Delta goes with which Spark: decided from version numbers alone, before anything is fetched or written.

A release of Delta is built for one to three series of Spark, with an artifact on Maven Central for each. Sources:
Delta's release notes, and runs of each pair (`docs/decisions/platforms-and-airflow.md`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract import packages
from airflow_gddl.contract.codes import DELTA_UNSUPPORTED, SPARK_UNSUPPORTED
from airflow_gddl.contract.errors import FatalError

Series = tuple[int, ...]
"""First two numbers of a version."""

OLDEST: Series = (4, 0)
BEYOND: Series = (5, 0)
SCALA = "2.13"
_PLAIN = re.compile(r"\d+\.\d+\.\d+")
"""A release of the project itself; a platform's own build (`4.0.2-amzn-0`) has its own patches."""


@dataclass(frozen=True, kw_only=True)
class DeltaRelease:
    """A series of Delta.

    Attributes:
        version: the newest patch release known to be on Maven Central.
        artifacts: Maven's artifact by the series of Spark it was built for, without Scala's version.
        newest_spark: by series of Spark, its last patch release that works; without an entry every one does.
    """

    version: str
    artifacts: Mapping[Series, str]
    newest_spark: Mapping[Series, str] = field(default_factory=dict)


def _suffixed(*sparks: Series) -> Mapping[Series, str]:
    """Names since Delta 4.1."""
    return {spark: f"delta-spark_{text(spark)}" for spark in sparks}


def text(series: Series) -> str:
    return ".".join(map(str, series))


_BEFORE_4_1_2: Mapping[Series, str] = {(4, 1): "4.1.1"}
"""Spark 4.1.2 changed a class that Delta's own extends: `DeltaTable` can't be loaded any more."""
DELTA: Mapping[Series, DeltaRelease] = {
    (4, 0): DeltaRelease(version="4.0.1", artifacts={(4, 0): "delta-spark"}),
    (4, 1): DeltaRelease(version="4.1.0", artifacts=_suffixed((4, 0), (4, 1)), newest_spark=_BEFORE_4_1_2),
    (4, 2): DeltaRelease(version="4.2.0", artifacts=_suffixed((4, 0), (4, 1)), newest_spark=_BEFORE_4_1_2),
    (4, 3): DeltaRelease(version="4.3.1", artifacts=_suffixed((4, 0), (4, 1))),
    (4, 4): DeltaRelease(version="4.4.0", artifacts=_suffixed((4, 0), (4, 1), (4, 2))),
}
AWS_SDK: Mapping[str, str] = {"3.4.1": "2.24.6", "3.4.2": "2.29.52", "3.5.0": "2.35.4"}
"""Version of Hadoop to that of Amazon's SDK it was built against."""


def series(version: str) -> Series:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def check_spark(version: str, what: str, remedy: str) -> None:
    """Refuse a Spark that is too old or too new.

    Args:
        what: where this Spark is, for the message.
        remedy: where to choose another.

    Raises:
        FatalError: `SPARK_UNSUPPORTED`.
    """
    if not OLDEST <= series(version) < BEYOND:
        choose = f"use a Spark from {text(OLDEST)} up to {text(BEYOND)}: {remedy}"
        raise FatalError(SPARK_UNSUPPORTED, f"{what} is Spark {version}", remedy=choose)


def check_pair(spark: str, delta: str, remedy: str) -> None:
    """Whether this Delta runs on this Spark. A series newer than all known ones is not refused.

    Raises:
        FatalError: `DELTA_UNSUPPORTED`.
    """
    known = DELTA.get(series(delta))
    if not OLDEST <= series(delta) < BEYOND:
        what = f"Delta {delta} is not supported"
    elif known is None:
        return
    elif series(spark) not in known.artifacts:
        what = f"Delta {delta} has no build for Spark {spark}"
    elif _is_beyond(spark, known.newest_spark.get(series(spark))):
        what = f"Delta {delta} does not run on Spark {spark}: it was built against {known.newest_spark[series(spark)]}"
    else:
        return
    raise FatalError(DELTA_UNSUPPORTED, what, remedy=f"{_fitting(spark)}; {remedy}")


def delta_of_packages(pyspark: str, delta_spark: str) -> str:
    """Version of Delta's JARs in a Python that runs jobs.

    Those of delta-spark where they run on this Spark. Otherwise the newest that do: pins of other packages can lead a
    resolver to an old delta-spark with a new pyspark (its own metadata takes any), and its Python only calls the JARs.

    Raises:
        FatalError: `SPARK_UNSUPPORTED`; `DELTA_UNSUPPORTED`: no JARs are known for this Spark, or the package is of
            another major version. The remedy is the command that installs a pair.
    """
    remedy = f"run `{pip_command(pyspark)}` in the Python that runs the job"
    check_spark(pyspark, "the package pyspark", remedy)
    newest = _newest_fitting(pyspark)
    try:
        check_pair(pyspark, delta_spark, remedy)
    except FatalError:
        if newest is None or not OLDEST <= series(delta_spark) < BEYOND:
            raise
        return newest
    return delta_spark


JOB_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow")


def job_packages() -> str:
    """Versions of the packages of a job in this Python.

    Raises:
        FatalError: `PACKAGE_MISSING`, or as `delta_of_packages`.
    """
    versions = {name: packages.installed_version(name) for name in JOB_PACKAGES}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        raise packages.package_missing("a job on this machine", *missing, install="airflow-gddl[spark]")
    installed = {name: str(version) for name, version in versions.items()}
    jars = delta_of_packages(installed["pyspark"], installed["delta-spark"])
    shown = ", ".join(f"{name} {version}" for name, version in installed.items())
    return shown if jars == installed["delta-spark"] else f"{shown}; Delta's JARs {jars}"


def pip_command(pyspark: str) -> str:
    """Installs a pair that fits: with the series of this Spark if a Delta is known for it, else the newest."""
    fits = [delta for delta, release in DELTA.items() if series(pyspark) in release.artifacts]
    delta = max(fits or DELTA)
    spark = series(pyspark) if fits else max(DELTA[delta].artifacts)
    return f"pip install 'pyspark=={text(spark)}.*' 'delta-spark=={text(delta)}.*'"


def artifact(spark: str, delta: str) -> str:
    """Maven's `group:artifact:version` of a pair that `check_pair` lets pass."""
    known = DELTA.get(series(delta))
    name = known.artifacts[series(spark)] if known else f"delta-spark_{text(series(spark))}"
    return f"io.delta:{name}_{SCALA}:{delta}"


def newest_pair() -> tuple[str, str]:
    """Series of Spark of this Python, else the newest known one, and Maven's coordinates of the newest Delta for it."""
    newest = DELTA[max(DELTA)]
    spark = packages.installed_version("pyspark")
    delta = None if spark is None else _newest_fitting(spark)
    if spark is None or delta is None:
        spark, delta = text(max(newest.artifacts)), newest.version
    return text(series(spark)), artifact(spark, delta)


def _is_beyond(spark: str, newest: str | None) -> bool:
    return newest is not None and _PLAIN.fullmatch(spark) is not None and _numbers(spark) > _numbers(newest)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _fitting(spark: str) -> str:
    """The newest known Delta for a Spark; for a Spark that none is known for, the newest pair."""
    fits = _newest_fitting(spark)
    if fits is not None:
        return f"Spark {spark} goes with Delta {fits}"
    newest = DELTA[max(DELTA)]
    pair = f"Spark {text(max(newest.artifacts))} with Delta {newest.version}"
    return f"no Delta is known to run on Spark {spark}; the newest known pair is {pair}"


def _newest_fitting(spark: str) -> str | None:
    """The newest known Delta for a Spark."""
    fits = [
        release.version
        for _, release in sorted(DELTA.items())
        if series(spark) in release.artifacts and not _is_beyond(spark, release.newest_spark.get(series(spark)))
    ]
    return fits[-1] if fits else None
