"""JARs by the versions that are installed, from the cache where they are there."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from airflow_gddl.contract import spark_versions as versions
from airflow_gddl.contract.errors import FatalError
from spark_jobs.spark import jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("GDDL_JARS", str(tmp_path))
    return tmp_path


def missing(*_: object) -> str:
    """For `class_path`: nothing can be fetched."""
    return "module not found"


def installed(monkeypatch: pytest.MonkeyPatch, spark: str, delta: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", spark)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: delta)


def test_delta_follows_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "4.0.2", "4.0.1")
    found = jars.delta()
    assert (found.name, found.coordinates) == ("delta-4.0.1-spark-4.0", ("io.delta:delta-spark_2.13:4.0.1",))


@pytest.mark.parametrize(
    ("spark", "delta", "code"), [("3.5.6", "3.3.2", "SPARK_UNSUPPORTED"), ("4.3.0", "4.2.0", "DELTA_UNSUPPORTED")]
)
def test_nothing_is_fetched_for_a_pair_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, spark: str, delta: str, code: str
) -> None:
    installed(monkeypatch, spark, delta)
    with pytest.raises(FatalError, match=rf"{code}.*(Spark {spark}).*pyspark.*delta-spark"):
        jars.delta()


def test_missing_patch_release_uses_the_known_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(monkeypatch, "4.2.0", "4.4.9")
    wanted = jars.delta()
    assert (wanted.name, wanted.other) == ("delta-4.4.9-spark-4.2", replace(jars._delta("4.4.0"), other=None))
    with pytest.raises(FatalError, match=r"DELTA_MISSING.*Delta 4\.4\.9.*module not found.*delta-4\.4\.9-spark-4\.2"):
        jars.class_path(wanted, cache, missing)
    jar = cache / "delta-4.4.0-spark-4.2" / "io.delta_delta-spark_4.2_2.13-4.4.0.jar"
    jar.parent.mkdir()
    jar.touch()
    assert jars.class_path(wanted, cache, missing) == [str(jar)]
    assert caplog.messages == [
        "the JARs of Delta 4.4.9 could not be had (module not found): those of Delta 4.4.0 are used"
    ]


def test_the_known_release_is_fetched_where_the_patch_release_is_not_to_be_had(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(folder: Path, _scratch: Path, bundle: jars.JarSet) -> str:
        if "4.4.9" in bundle.name:
            return "module not found"
        folder.mkdir()
        (folder / "io.delta_delta-spark_4.2_2.13-4.4.0.jar").touch()
        return ""

    installed(monkeypatch, "4.2.0", "4.4.9")
    (found,) = jars.class_path(jars.delta(), cache, resolve)
    assert found.endswith("2.13-4.4.0.jar")


def test_cached_jars_of_another_patch_do_not_keep_the_installed_one_from_being_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-spark 4.4.1 ran with the JARs of 4.4.0 that an earlier job had left."""

    def resolve(folder: Path, _scratch: Path, bundle: jars.JarSet) -> str:
        folder.mkdir()
        (folder / f"io.delta_delta-spark_4.2_2.13-{bundle.what.split()[1]}.jar").touch()
        return ""

    for version in ("4.4.0", "4.4.9"):
        installed(monkeypatch, "4.2.0", version)
        (found,) = jars.class_path(jars.delta(), cache, resolve)
        assert found.endswith(f"2.13-{version}.jar")


def test_s3a_is_of_the_hadoop_that_spark_brings() -> None:
    hadoop = jars.hadoop_version()
    assert hadoop in versions.AWS_SDK
    assert jars.s3a().coordinates[0] == f"org.apache.hadoop:hadoop-aws:{hadoop}"
    assert f"software.amazon.awssdk:s3:{versions.AWS_SDK[hadoop]}" in jars.s3a().coordinates


def test_a_cache_that_can_not_be_written_says_so_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a container whose user has no home."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("GDDL_JARS", str(tmp_path / "file" / "cache"))
    with pytest.raises(FatalError, match=r"DELTA_MISSING.*can't be written.*GDDL_JARS"):
        jars.class_path(jars.delta(), tmp_path)
