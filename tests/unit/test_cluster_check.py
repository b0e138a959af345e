"""What a cluster must have; the questions themselves are asked of a real one in `tests/cluster`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.errors import FatalError
from spark_jobs import cluster_check
from spark_jobs.cluster_check import check_versions


@dataclass
class Row:
    said: str

    def __getitem__(self, name: str) -> str:
        return str(getattr(self, name))


@dataclass
class Cluster:
    """A session of some version, without a JVM as under Spark Connect, whose executors tell what `tell` makes of it."""

    version: str = "4.2.0"
    said: dict[str, Any] = field(default_factory=dict)

    def range(self, *_: int) -> Cluster:
        return self

    def mapInArrow(self, probe: Any, _schema: str) -> Cluster:  # noqa: N802 - Spark's name
        (batch,) = list(probe(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
        self.said = {**json.loads(batch["said"][0].as_py()), **self.said}
        return self

    def collect(self) -> list[Row]:
        return [Row(json.dumps(self.said))]


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0", "4.2.0", "4.3.0-SNAPSHOT"])
def test_supported_versions(version: str) -> None:
    check_versions(Cluster(version))  # type: ignore[arg-type]  # as much of a session as is asked


@pytest.mark.parametrize("version", ["3.5.6", "5.0.0"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(FatalError, match=f"Spark {version}") as caught:
        check_versions(Cluster(version))  # type: ignore[arg-type]  # as much of a session as is asked
    assert caught.value.code == "SPARK_UNSUPPORTED"
    assert "4.0" in caught.value.remedy


def test_executors_like_the_driver_are_fit() -> None:
    cluster_check.check_executors(Cluster(), 1)  # type: ignore[arg-type]  # as much of a session as is asked


@pytest.mark.parametrize(
    ("said", "code", "shown"),
    [
        ({"contract": 99}, "CONTRACT_VERSION", "contract version 99, the driver's 1"),
        ({"contract": None}, "EXECUTOR_UNFIT", "lacks airflow-gddl"),
        ({"duckdb": None, "pyarrow": None}, "EXECUTOR_UNFIT", "lacks duckdb, pyarrow"),
        ({"deltalake": "0.9.1", "host": "node7"}, "EXECUTOR_UNFIT", "deltalake 0.9.1"),
    ],
)
def test_others_are_told_of_with_what_they_lack(said: dict[str, Any], code: str, shown: str) -> None:
    with pytest.raises(FatalError) as caught:
        cluster_check.check_executors(Cluster(said=said), 1)  # type: ignore[arg-type]  # as much of a session as is asked
    assert caught.value.code == code
    assert shown in str(caught.value)
    assert said.get("host", "") in str(caught.value)
