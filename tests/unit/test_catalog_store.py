"""The folder in an object store gives the same catalog as the folder on a disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.metadata.folder import MAX_BYTES, LocalFolder, StoreFolder, open_folder
from airflow_gddl.metadata.loading import load_folder
from airflow_gddl.metadata.settings import SettingsError
from airflow_gddl.stores import open_store
from tests.harness.s3_server import Bucket, serving
from tests.unit.metadata_folder import SETTINGS, row_file, write

FILES: dict[str, str | bytes] = {
    "gddl.yaml": SETTINGS,
    "tables/shop/a.yaml": row_file("{table: s.b}", "{table: s.a, keys: [id]}", "{table: s.c}"),
    "tables/.hidden.yaml": "[",
    "keys/k.json": '{"keys": {"s.b": ["id"]}}',
    "notes/readme.yaml": "[",
}


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket()
    with serving(bucket) as bucket.url:
        yield bucket


def folder(bucket: Bucket, files: Mapping[str, str | bytes], base: str = "metadata") -> StoreFolder:
    """A folder in the bucket with these files alone."""
    contents = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
    bucket.objects = {f"{base}/{name}": data for name, data in contents.items()}
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_MAX_ATTEMPTS": "1"}
    return StoreFolder(open_store({"AWS_ENDPOINT_URL": bucket.url, **keys}), f"s3://bucket/{base}")


def test_both_folders_give_the_same_but_for_relative_roots(tmp_path: Path, bucket: Bucket) -> None:
    local = load_folder(LocalFolder(write(tmp_path, FILES)), {})
    remote = load_folder(folder(bucket, FILES), {})
    assert (remote.roots.landing, remote.roots.lake) == ("s3://bucket/metadata/landing", "s3://bucket/metadata/lake")
    assert replace(remote, roots=local.roots) == local
    assert [spec.table for spec in local.tables] == ["s.a", "s.b"]
    assert [(problem.code, problem.place) for problem in local.problems] == [("KEYS_MISSING", "tables/shop/a.yaml:5")]


def test_relative_roots_may_climb_in_a_store_but_not_out_of_it(bucket: Bucket) -> None:
    place = folder(bucket, {"gddl.yaml": "landing: ../landing\nlake: ../../\n"}, "a/metadata")
    roots = load_folder(place, {}).roots
    assert (roots.landing, roots.lake) == ("s3://bucket/a/landing", "s3://bucket")
    with pytest.raises(SettingsError, match="climbs out of the bucket"):
        load_folder(place, {"GDDL_LAKE": "../../../other"})


def test_only_the_start_of_a_huge_object_is_read(bucket: Bucket) -> None:
    place = folder(bucket, {"tables/a.yaml": b"#" * (MAX_BYTES + 100), "gddl.yaml": SETTINGS})
    assert len(place.read("tables/a.yaml")) == MAX_BYTES + 1
    assert [problem.code for problem in load_folder(place, {}).problems] == ["FILE_TOO_LARGE"]


def test_a_missing_object_is_a_missing_file(bucket: Bucket) -> None:
    with pytest.raises(FileNotFoundError):
        folder(bucket, {}).read("gddl.yaml")


@pytest.mark.parametrize(
    ("status", "family", "code"), [(503, RetriableError, "METADATA_UNREACHABLE"), (403, FatalError, "STORAGE_DENIED")]
)
def test_an_unreachable_store_is_retriable_and_a_refusal_is_not(
    bucket: Bucket, status: int, family: type[Exception], code: str
) -> None:
    place = folder(bucket, FILES)
    bucket.fail = status
    with pytest.raises(family, match=code) as error:
        load_folder(place, {})
    assert "s3://bucket/metadata" in error.value.where


def test_a_place_is_a_path_or_a_url(tmp_path: Path) -> None:
    assert open_folder(tmp_path) == LocalFolder(tmp_path)
    assert open_folder(str(tmp_path)).base == str(tmp_path)
    assert open_folder("s3://bucket/metadata/").base == "s3://bucket/metadata"
