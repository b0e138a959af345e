"""A cache folder that can't be written, and a pipeline that is newer than what a worker has."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from airflow_gddl import configuration
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.dags.factory import MetadataProblems, build_dags, raise_problems
from tests.airflow.stage import Stage
from tests.harness.s3_server import Bucket

PACK = "gddl_pack.shop.small.1"
ROWS = b"tables:\n  - {table: shop.a, keys: [id]}\n  - {table: shop.b, keys: [id], size: large}\n"


def test_an_unwritable_cache_folder_is_reported_and_breaks_no_dag(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("AIRFLOW__GDDL__CACHE_DIR", str(tmp_path / "a file" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert list(build_dags()) == [PACK]
    with pytest.raises(MetadataProblems, match=r"\[CACHE_UNUSABLE\]") as raised:
        raise_problems()
    assert str(tmp_path / "a file") in str(raised.value)
    (folder,) = tmp_path.glob("airflow-gddl-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(folder)
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)  # as somebody else may have made it beforehand
    with pytest.raises(FatalError, match="CACHE_UNUSABLE"):
        build_dags()


def test_a_worker_reloads_the_metadata_for_an_unknown_pipeline(
    bucket: Bucket, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm worker lists its metadata every `refresh_seconds` only; a new DAG's first task comes sooner."""
    bucket.objects["meta/gddl.yaml"] = b"landing: s3://bucket/landing\nlake: s3://bucket/lake\n"
    bucket.objects["meta/tables/shop.yaml"] = ROWS
    monkeypatch.setenv("GDDL_METADATA", "s3://bucket/meta")
    assert sorted(build_dags()) == ["gddl.shop.b", PACK]
    bucket.objects["meta/tables/new.yaml"] = b"tables:\n  - {table: shop.new, keys: [id], size: large}\n"
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "gddl.shop.new")
    assert list(build_dags()) == ["gddl.shop.new"]
    bucket.objects["meta/tables/newer.yaml"] = b"tables:\n  - {table: shop.newer, keys: [id], size: large}\n"
    document = configuration.compiled_metadata("s3://bucket/meta").pipeline("gddl.shop.newer")
    assert document is not None
    asked = len(bucket.requests)
    assert configuration.compiled_metadata("s3://bucket/meta").pipeline("gddl.shop.newer") == document
    assert len(bucket.requests) == asked
