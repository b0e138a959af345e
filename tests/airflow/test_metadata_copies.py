"""Metadata that can't be read or kept: copies in the lake, a cache folder that can't be written, a row too new."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl import configuration
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.dags.factory import MetadataProblems, build_dags, raise_problems
from airflow_gddl.runtime.compiled.cache import CompiledSettings
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from tests.airflow.stage import Stage
from tests.harness.s3_server import Bucket

PACK = "gddl_pack.shop.small.1"
ROWS = b"tables:\n  - {table: shop.a, keys: [id]}\n  - {table: shop.b, keys: [id], size: large}\n"


def settings_of(tmp_path: Path, metadata: str, cache: str = "cache") -> CompiledSettings:
    return CompiledSettings(
        metadata=metadata,
        cache=tmp_path / cache,
        environ=dict(os.environ),
        clock=lambda: 2e9,
        copy=str(tmp_path / "lake"),
        copy_environ=dict(os.environ),
    )


def bucket_settings(bucket: Bucket, tmp_path: Path) -> CompiledSettings:
    bucket.objects["meta/gddl.yaml"] = b"landing: s3://bucket/landing\nlake: s3://bucket/lake\n"
    bucket.objects["meta/tables/shop.yaml"] = ROWS
    return settings_of(tmp_path, "s3://bucket/meta")


def test_a_new_container_serves_the_copy_while_the_metadata_can_t_be_read(tmp_path: Path, bucket: Bucket) -> None:
    settings = bucket_settings(bucket, tmp_path)
    before = CompiledMetadata.current(settings)
    (copy,) = (tmp_path / "lake").rglob("*.gz")
    copy.with_name(f".{copy.name}.5f2a.tmp").write_bytes(copy.read_bytes()[:40])  # of a process that was killed
    bucket.fail = 403
    replaced = CompiledMetadata.current(replace(settings, cache=tmp_path / "new container"))
    assert [p.dag_id for p in replaced.pipelines()] == [p.dag_id for p in before.pipelines()]
    document = replaced.pipeline(PACK)
    assert document is not None
    assert [spec.table for spec in document.specs] == ["shop.a"]
    assert replaced.directory() == before.directory()
    assert (replaced.state.built_at, replaced.state.stale_since is not None) == (before.state.built_at, True)
    assert "STORAGE_DENIED" in replaced.state.why
    bucket.fail = None
    bucket.objects["meta/tables/erp.yaml"] = b"tables:\n  - {table: erp.x, keys: [id]}\n"
    again = replaced.renewed()
    assert again.state.stale_since is None
    assert len(again.pipelines()) == 3


def test_copies_are_written_when_the_metadata_changed_and_few_are_kept(tmp_path: Path, bucket: Bucket) -> None:
    settings = bucket_settings(bucket, tmp_path)
    folder = tmp_path / "lake" / "_gddl" / "airflow" / "metadata"

    def copies() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.gz")}

    CompiledMetadata.current(settings)
    first = copies()
    assert len(first) == 1
    CompiledMetadata.current(replace(settings, cache=tmp_path / "another worker"))
    assert copies() == first
    for n in range(4):
        bucket.objects[f"meta/tables/t{n}.yaml"] = f"tables:\n  - {{table: erp.x{n}, keys: [id]}}\n".encode()
        CompiledMetadata.current(replace(settings, refresh_seconds=0, settle_seconds=0))
    assert len(copies()) == 2
    assert first.keys().isdisjoint(copies())


@pytest.mark.parametrize("content", [b"", b"no gzip", None])
def test_a_damaged_copy_or_none_is_as_if_there_were_none(tmp_path: Path, bucket: Bucket, content: bytes | None) -> None:
    settings = bucket_settings(bucket, tmp_path)
    CompiledMetadata.current(settings)
    for path in (tmp_path / "lake").rglob("*.gz"):
        path.unlink() if content is None else path.write_bytes(content)
    bucket.fail = 500
    replaced = CompiledMetadata.current(replace(settings, cache=tmp_path / "new container", time_limit=5))
    assert (replaced.pipelines(), replaced.generation) == ((), None)
    assert replaced.state.why


def test_a_lake_that_can_t_be_written_costs_the_copy_alone(tmp_path: Path, bucket: Bucket) -> None:
    settings = bucket_settings(bucket, tmp_path)
    (tmp_path / "lake").write_text("no folder")
    assert len(CompiledMetadata.current(settings).pipelines()) == 2


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
    tmp_path: Path, bucket: Bucket, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm worker lists its metadata every `refresh_seconds` only; a new DAG's first task comes sooner."""
    bucket_settings(bucket, tmp_path)
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
