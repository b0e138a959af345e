"""When Spark is started again after it could not be: a job that goes on is not to lack it for days."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("pyspark")

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from spark_jobs.batch.runtime import LazySpark
from spark_jobs.spark.session_settings import LITTLE_WORK, SessionSettings


class Session:
    """As much of one as is asked for here, its context, and the Java objects of that."""

    def __init__(self) -> None:
        self.conf = self._sc = self._jsc = self
        self.kept: dict[str, str] = {}
        self.is_stopped = False

    def sc(self) -> Session:
        return self

    def isStopped(self) -> bool:  # noqa: N802 - Spark's name
        return self.is_stopped

    def get(self, key: str, default: str) -> str:
        return self.kept.get(key, default)

    def newSession(self) -> Session:  # noqa: N802 - Spark's name
        return self

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value


@dataclass
class Cluster:
    """Starts that fail with these, one after the other, and then go well."""

    faults: list[GddlError]
    starts: int = 0
    now: float = 0.0
    session: Session = field(default_factory=Session)
    settings: SessionSettings | None = None

    def open(self, settings: SessionSettings) -> Any:
        self.starts += 1
        self.settings = settings
        if self.faults:
            raise self.faults.pop(0)
        return self.session


def lazy(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> LazySpark:
    monkeypatch.setattr("spark_jobs.spark.session.open_session", cluster.open)
    return LazySpark(now=lambda: cluster.now)


def test_retriable_start_is_retried_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([RetriableError("NO_EXECUTORS", "none came")])
    spark = lazy(cluster, monkeypatch)
    for now in (0.0, 1.0, 59.0):
        cluster.now = now
        with pytest.raises(RetriableError, match="NO_EXECUTORS"):
            spark.for_table()
    assert cluster.starts == 1
    cluster.now = 61.0
    assert spark.for_table().conf is cluster.session.conf
    spark.for_table()
    assert cluster.starts == 2


def test_fatal_start_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([FatalError("JAVA_MISSING", "no Java")])
    spark = lazy(cluster, monkeypatch)
    for now in (0.0, 10_000.0):
        cluster.now = now
        with pytest.raises(FatalError, match="JAVA_MISSING"):
            spark.for_table()
    assert cluster.starts == 1


def test_external_spark_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder of ours, or on a cluster, its driver is the job: that has to end, and be started again."""
    cluster = Cluster([])
    spark = lazy(cluster, monkeypatch)
    spark.for_table()
    assert (spark.losses(), spark.end) == (0, None)
    cluster.session.is_stopped = True
    assert (spark.losses(), spark.end) == (1, None)
    for _ in range(2):
        with pytest.raises(RetriableError, match="SPARK_GONE"):
            spark.for_table()
    assert (spark.losses(), cluster.starts) == (1, 1)
    assert spark.end is not None
    assert spark.end.code == "SPARK_GONE"
    spark.stop()


@pytest.mark.parametrize(
    ("work", "more", "quick"),
    [
        (LITTLE_WORK, {"single": True}, True),
        (LITTLE_WORK + 1, {"single": True}, False),
        (None, {"single": True}, False),
        (1, {"single": False}, False),
        (1, {"single": True, "lasting": True}, False),
    ],
)
def test_a_session_for_little_work_compiles_quickly(
    monkeypatch: pytest.MonkeyPatch, work: int | None, more: dict[str, bool], quick: bool
) -> None:
    cluster = Cluster([])
    spark = lazy(cluster, monkeypatch)
    spark.settings = SessionSettings(**more)
    spark.for_table(work)
    assert cluster.settings is not None
    flags = cluster.settings.java_flags({})
    assert ("-XX:TieredStopAtLevel=1" in flags, "-XX:ReservedCodeCacheSize=256m" in flags) == (quick, quick)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("-Xmx1g", ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m")),
        ("-XX:+UseG1GC -XX:InitialCodeCacheSize=300m", ("-XX:TieredStopAtLevel=1",)),
    ],
)
def test_flags_of_the_environment_are_kept(given: str, left: tuple[str, ...]) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        assert SessionSettings(brief=True).java_flags({name: given}) == left


def test_heap_of_a_long_job_stays_near_what_it_holds() -> None:
    heap = ("-XX:GCTimeRatio=4", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30")
    assert SessionSettings().java_flags({}) == heap
    assert SessionSettings().java_flags({"JDK_JAVA_OPTIONS": "-XX:+UseParallelGC"}) == ()
