"""The folder of links from which an embedded Spark starts: without what no job uses, and made once."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest

from spark_jobs.spark import class_archive
from spark_jobs.spark.spark_home import home_of, starting

_INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GDDL_JARS", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "cache"


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_embedded_spark_starts_from_all_that_is_installed_but_libraries_that_no_job_uses(cache: Path) -> None:
    home = home_of({})
    assert home.parent == cache
    assert _names(home) == _names(_INSTALLED)
    left_out = _names(_INSTALLED / "jars") - _names(home / "jars")
    assert {name.partition("_")[0] for name in left_out} >= {"spark-mllib", "spark-graphx", "spark-kubernetes"}
    kept = {name.partition("_")[0] for name in _names(home / "jars")}
    assert kept >= {"spark-core", "spark-sql", "spark-catalyst", "spark-hive", "spark-launcher"}
    assert all(path.exists() for path in (home / "jars").iterdir())


def test_it_is_made_once(cache: Path) -> None:
    made = home_of({}).stat()
    assert home_of({}).stat().st_ino == made.st_ino
    assert len(_names(cache)) == 1, "nothing is left beside it"


@pytest.mark.parametrize("environ", [{"SPARK_HOME": "/opt/spark"}, {"GDDL_SPARK_MASTER": "k8s://https://host"}])
def test_another_spark_and_one_of_a_cluster_start_as_installed(cache: Path, environ: dict[str, str]) -> None:
    assert home_of(environ) == Path(environ.get("SPARK_HOME", _INSTALLED))
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_leaves_it_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GDDL_JARS", str(tmp_path / "file" / "cache"))
    assert home_of({}) == _INSTALLED


def test_the_environment_of_the_job_stays_as_it_was(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Xmx64m")
    before = dict(os.environ)
    with starting():
        assert os.environ["SPARK_HOME"] == str(home_of({}))
        assert os.environ["SPARK_LAUNCHER_OPTS"] == "-Xmx64m", "what somebody has chosen holds"
    assert dict(os.environ) == before


def test_the_archive_for_a_driver_of_a_cluster_is_written_from_its_own_home(cache: Path) -> None:
    job = {**os.environ, "GDDL_SPARK_MASTER": "spark://host:7077"}
    writing = class_archive.writing_environment(job)
    assert class_archive.name_of("/delta.jar", writing) == class_archive.name_of("/delta.jar", job)
    assert class_archive.name_of("/delta.jar", os.environ) != class_archive.name_of("/delta.jar", job)
