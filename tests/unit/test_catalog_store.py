"""The folder in an object store gives the same catalog as the folder on a disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from obstore.store import HTTPStore, MemoryStore

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.metadata.folder import MAX_BYTES, LocalFolder, StoreFolder, open_folder
from airflow_gddl.metadata.loading import load_folder
from airflow_gddl.metadata.settings import SettingsError
from tests.unit.metadata_folder import SETTINGS, row_file, write

FILES: dict[str, str | bytes] = {
    "gddl.yaml": SETTINGS,
    "tables/shop/a.yaml": row_file("{table: s.b}", "{table: s.a, keys: [id]}", "{table: s.c}"),
    "tables/.hidden.yaml": "[",
    "keys/k.json": '{"keys": {"s.b": ["id"]}}',
    "notes/readme.yaml": "[",
}


def store(files: dict[str, str | bytes]) -> MemoryStore:
    memory = MemoryStore()
    for name, content in files.items():
        obstore.put(memory, name, content if isinstance(content, bytes) else content.encode())
    return memory


def test_both_folders_give_the_same_but_for_relative_roots(tmp_path: Path) -> None:
    local = load_folder(LocalFolder(write(tmp_path, FILES)), {})
    remote = load_folder(StoreFolder(store(FILES), "s3://bucket/metadata"), {})
    assert (remote.roots.landing, remote.roots.lake) == ("s3://bucket/metadata/landing", "s3://bucket/metadata/lake")
    assert replace(remote, roots=local.roots) == local
    assert [spec.table for spec in local.tables] == ["s.a", "s.b"]
    assert [(problem.code, problem.place) for problem in local.problems] == [("KEYS_MISSING", "tables/shop/a.yaml:5")]


def test_relative_roots_may_climb_in_a_store_but_not_out_of_it() -> None:
    folder = StoreFolder(store({"gddl.yaml": "landing: ../landing\nlake: ../../\n"}), "s3://bucket/a/metadata")
    roots = load_folder(folder, {}).roots
    assert (roots.landing, roots.lake) == ("s3://bucket/a/landing", "s3://bucket")
    with pytest.raises(SettingsError, match="climbs out of the bucket"):
        load_folder(folder, {"GDDL_LAKE": "../../../other"})


def test_only_the_start_of_a_huge_object_is_read() -> None:
    folder = StoreFolder(store({"tables/a.yaml": b"#" * (MAX_BYTES + 100), "gddl.yaml": SETTINGS}), "s3://b/m")
    assert len(folder.read("tables/a.yaml")) == MAX_BYTES + 1
    assert [problem.code for problem in load_folder(folder, {}).problems] == ["FILE_TOO_LARGE"]


def test_a_missing_object_is_a_missing_file() -> None:
    with pytest.raises(FileNotFoundError):
        StoreFolder(store({}), "s3://b/m").read("gddl.yaml")


def test_a_store_that_does_not_answer_is_a_passing_fault() -> None:
    dead = HTTPStore(
        "http://127.0.0.1:9",
        client_options={"timeout": "1s", "connect_timeout": "1s", "allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(RetriableError) as error:
        load_folder(StoreFolder(dead, "s3://b/m"), {})
    assert (error.value.code, error.value.where) == ("METADATA_UNREACHABLE", "s3://b/m")


def test_a_place_is_a_path_or_a_url(tmp_path: Path) -> None:
    assert open_folder(tmp_path) == LocalFolder(tmp_path)
    assert open_folder(str(tmp_path)).base == str(tmp_path)
    assert open_folder("s3://bucket/metadata/").base == "s3://bucket/metadata"
