"""One contract on both kinds of store; the S3 side over HTTP against an endpoint in this process."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.stores import Storage, StoredObject, open_store
from airflow_gddl.stores.readers import os_error
from tests.harness.s3_server import Bucket, serving


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    bucket = Bucket()
    with serving(bucket) as url:
        settings = {"ENDPOINT": url, "ALLOW_HTTP": "true", "REGION": "eu-west-1"}
        for name, value in {**settings, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield bucket


@pytest.fixture(params=["local", "file-url", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        request.getfixturevalue("bucket")
        return "s3://bucket/landing"
    return f"{'file://' if request.param == 'file-url' else ''}{tmp_path}"


def names(found: Iterator[StoredObject], root: str) -> list[str]:
    return [item.path.removeprefix(f"{root}/") for item in found]


def test_listing_is_in_object_name_order_and_takes_any_name(root: str) -> None:
    storage = Storage()
    wanted = ["a.b", "a/b", "a/ü/100%25 of it", "a0", "b#1", "with space/é+&?.parquet"]
    for name in reversed(wanted):
        storage.write(f"{root}/{name}", name.encode())
    assert names(storage.list(root), root) == wanted
    assert names(storage.list(f"{root}/a"), root) == ["a/b", "a/ü/100%25 of it"]
    assert [storage.read(item.path).decode() for item in storage.list(root)] == wanted


@pytest.mark.parametrize("after", ["", "a", "a.", "a.b", "a/", "a/b", "a/b/", "a/ü", "a0", "a00", "zz"])
def test_after_is_exclusive_and_need_not_exist(root: str, after: str) -> None:
    storage = Storage()
    everything = ["a.b", "a/b", "a/b.c", "a/b/c", "a/ü/x", "a0", "aa/a"]
    # A local file system can't hold the file a/b beside the folder a/b.
    everything = everything if root.startswith("s3") else [name for name in everything if name != "a/b"]
    for name in everything:
        storage.write(f"{root}/{name}", b"")
    assert names(storage.list(root, after), root) == [name for name in everything if name > after]


def test_listing_tells_size_etag_and_time(root: str) -> None:
    storage = Storage()
    storage.write(f"{root}/x", b"four")
    (first,) = storage.list(root)
    assert (first.folder, first.name, first.path, first.size) == (root, "x", f"{root}/x", 4)
    assert datetime.fromisoformat(first.modified_at) == datetime.fromtimestamp(first.modified, UTC)
    assert len(first.modified_at) == len("2024-01-31T10:20:30.000000+00:00")
    assert first == storage.stat(f"{root}/x")
    assert storage.stat(f"{root}/x").path == f"{root}/x"
    assert storage.stat(f"{root}/none") is None
    assert '"' not in first.etag
    storage.write(f"{root}/x", b"five")
    (second,) = storage.list(root)
    assert second.etag != first.etag


def test_absent_objects_are_no_errors_but_for_reads(root: str) -> None:
    storage = Storage()
    assert list(storage.list(f"{root}/none")) == []
    assert not storage.exists(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        storage.read(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        storage.open_input(f"{root}/none")
    storage.delete(f"{root}/none")
    storage.write(f"{root}/folder/x", b"")
    assert storage.exists(f"{root}/folder")
    assert not storage.exists(f"{root}/fold")
    with pytest.raises(FileNotFoundError):
        storage.read(f"{root}/folder")


def test_a_copy_has_the_content_and_replaces_what_is_there(root: str) -> None:
    storage = Storage()
    storage.write(f"{root}/a/ü x=1.parquet", b"content")
    for _ in range(2):
        storage.copy(f"{root}/a/ü x=1.parquet", f"{root}/b/deep/ü x=1.parquet")
        assert storage.read(f"{root}/b/deep/ü x=1.parquet") == b"content"
        storage.write(f"{root}/b/deep/ü x=1.parquet", b"other")
    assert storage.read(f"{root}/a/ü x=1.parquet") == b"content"
    assert names(storage.list(f"{root}/b"), f"{root}/b") == ["deep/ü x=1.parquet"]
    with pytest.raises(FileNotFoundError):
        storage.copy(f"{root}/none", f"{root}/c")
    assert not storage.exists(f"{root}/c")


def test_create_is_put_if_absent(root: str) -> None:
    storage = Storage()
    assert storage.create(f"{root}/deep/er/x", b"first")
    assert not storage.create(f"{root}/deep/er/x", b"second")
    assert storage.read(f"{root}/deep/er/x") == b"first"
    storage.write(f"{root}/deep/er/x", b"third")
    assert storage.read(f"{root}/deep/er/x") == b"third"
    storage.delete(f"{root}/deep/er/x")
    assert storage.create(f"{root}/deep/er/x", b"fourth")
    assert names(storage.list(root), root) == ["deep/er/x"]


def test_create_has_one_winner_among_threads(root: str) -> None:
    storage = Storage()
    storage.exists(root)
    won: list[int] = []
    threads = [
        Thread(target=lambda n=n: won.append(n) if storage.create(f"{root}/one", b"%d" % n) else None)
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert storage.read(f"{root}/one") == b"%d" % won[0]


def test_swap_replaces_only_the_version_that_was_read(root: str) -> None:
    storage = Storage()
    assert storage.swap(f"{root}/deep/x", b"first", None)
    assert not storage.swap(f"{root}/deep/x", b"absent", None)
    data, tag = storage.read_tagged(f"{root}/deep/x")
    assert data == b"first"
    storage.write(f"{root}/deep/x", b"other")
    assert not storage.swap(f"{root}/deep/x", b"late", tag)
    assert storage.read(f"{root}/deep/x") == b"other"
    assert storage.swap(f"{root}/deep/x", b"in time", storage.read_tagged(f"{root}/deep/x")[1])
    assert storage.read(f"{root}/deep/x") == b"in time"
    assert not storage.swap(f"{root}/deep/none", b"", tag)


def test_the_start_of_an_object(root: str) -> None:
    storage = Storage()
    storage.write(f"{root}/x", b"0123456789" * 1_000_000)
    storage.write(f"{root}/empty", b"")
    assert storage.read(f"{root}/x", 12) == b"012345678901"
    assert storage.read(f"{root}/x", 20_000_000) == b"0123456789" * 1_000_000
    assert storage.read(f"{root}/empty", 12) == b""
    with pytest.raises(FileNotFoundError):
        storage.read(f"{root}/none", 12)


def test_many_are_deleted_whether_they_are_there_or_not(root: str) -> None:
    storage = Storage()
    for name in ("a", "b/c", "d"):
        storage.write(f"{root}/{name}", b"")
    storage.delete(f"{root}/a", f"{root}/none", f"{root}/b/c")
    storage.delete()
    assert names(storage.list(root), root) == ["d"]


def test_keys_are_not_mixed_with_those_of_the_process(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection laid over the environment of a worker that has a session of its own."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the worker")
    given = {name: value for name, value in os.environ.items() if name != "AWS_SESSION_TOKEN"}
    bucket.objects["l/x"] = b"x"
    for storage in (Storage(given), open_store(given)):
        assert storage.read("s3://bucket/l/x") == b"x"
    assert bucket.tokens == [None, None]
    assert Storage().read("s3://bucket/l/x") == b"x"
    assert bucket.tokens[2:] == ["of the worker"]


def test_a_bucket_that_has_no_such_name_is_refused_without_its_text() -> None:
    with pytest.raises(FatalError, match="STORAGE_UNUSABLE") as caught:
        Storage().read("s3://AKIAKEY:secret@bucket/x")
    assert "does not name a bucket" in caught.value.what
    assert "secret" not in caught.value.what


def test_parquet_reads_through_open_input(root: str) -> None:
    storage = Storage()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": list(range(200_000)), "t": ["x" * (i % 7) for i in range(200_000)]}), sink)
    storage.write(f"{root}/t.parquet", sink.getvalue().to_pybytes())
    with storage.open_input(f"{root}/t.parquet") as source:
        file = pq.ParquetFile(source)
        assert file.metadata.num_rows == 200_000
        assert file.read(columns=["id"])["id"].to_pylist()[-3:] == [199_997, 199_998, 199_999]
    with storage.open_input(f"{root}/t.parquet") as source:
        assert source.read(4) == b"PAR1"
        source.seek(-4, os.SEEK_END)
        assert source.read() == b"PAR1"
        assert source.read() == b""


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    storage = Storage()
    (tmp_path / "x").write_bytes(b"same" * 3_000_000)
    (first,) = storage.list(str(tmp_path))
    digest = hashlib.blake2b(b"same" * 3_000_000, digest_size=32).hexdigest()
    assert storage.fingerprint(first) == f"blake2b:{digest}"
    with pytest.raises(FileNotFoundError):
        storage.fingerprint(StoredObject(str(tmp_path), "gone", 1, "1", 0.0))


def test_fingerprint_on_s3_reads_only_what_has_no_digest(bucket: Bucket) -> None:
    storage = Storage()
    bucket.objects = {"l/one": b"1", "l/parts": b"2", "l/odd": b"3"}
    bucket.etags = {"l/parts": f"{'0' * 32}-17", "l/odd": "W/abc"}
    found = {item.path.rpartition("/")[2]: storage.fingerprint(item) for item in storage.list("s3://bucket/l")}
    odd = hashlib.blake2b(b"3", digest_size=32).hexdigest()
    md5 = hashlib.md5(b"1", usedforsecurity=False).hexdigest()
    assert found == {"one": f"md5:{md5}", "parts": f"md5:{'0' * 32}-17", "odd": f"blake2b:{odd}"}
    assert [request for request in bucket.requests if request.startswith("GET l/")] == ["GET l/odd"]


def test_listing_on_s3_pages_and_begins_after_a_name(bucket: Bucket) -> None:
    bucket.objects = {f"l/{number:05d}": b"" for number in range(2500)}
    storage = Storage()
    assert len(list(storage.list("s3://bucket/l"))) == 2500
    assert len(bucket.requests) == 3
    bucket.requests.clear()
    assert len(list(storage.list("s3://bucket/l", "02400"))) == 99
    assert len(bucket.requests) == 1
    bucket.requests.clear()
    assert names(storage.list("s3://bucket"), "s3://bucket")[0] == "l/00000"


@pytest.mark.parametrize(
    ("status", "family", "code"),
    [(503, RetriableError, "STORAGE_BUSY"), (500, RetriableError, "STORAGE_BUSY"), (403, FatalError, "STORAGE_DENIED")],
)
def test_s3_errors_by_family(
    bucket: Bucket, status: int, family: type[Exception], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    storage = Storage()
    bucket.fail = status
    actions: list[Callable[[], object]] = [
        lambda: list(storage.list("s3://bucket/l")),
        lambda: storage.read("s3://bucket/l/x"),
        lambda: storage.write("s3://bucket/l/x", b""),
        lambda: storage.create("s3://bucket/l/x", b""),
        lambda: storage.swap("s3://bucket/l/x", b"", "tag"),
        lambda: storage.stat("s3://bucket/l/x"),
        lambda: storage.delete("s3://bucket/l/x", "s3://bucket/l/y"),
        lambda: storage.open_input("s3://bucket/l/x"),
        lambda: storage.exists("s3://bucket/l"),
        lambda: storage.folders("s3://bucket/l"),
    ]
    for action in actions:
        with pytest.raises(family, match=code) as caught:
            action()
        assert "s3://bucket/l" in str(caught.value)


@pytest.mark.parametrize(
    ("number", "family", "code"),
    [
        (errno.EACCES, FatalError, "STORAGE_DENIED"),
        (errno.EROFS, FatalError, "STORAGE_DENIED"),
        (errno.ENAMETOOLONG, FatalError, "STORAGE_UNUSABLE"),
        (errno.EIO, RetriableError, "STORAGE_BUSY"),
        (errno.ESTALE, RetriableError, "STORAGE_BUSY"),
        (errno.ENOSPC, RetriableError, "DISK_FULL"),
    ],
)
def test_operating_system_errors_by_family(number: int, family: type[Exception], code: str) -> None:
    found = os_error(OSError(number, os.strerror(number)), "/x")
    assert isinstance(found, family)
    assert (found.code, found.where) == (code, "/x")


def test_a_path_no_store_understands_is_refused(tmp_path: Path) -> None:
    storage = Storage()
    for path in ("relative/x", "gs://bucket/x"):
        with pytest.raises(FatalError, match="STORAGE_UNUSABLE"):
            storage.read(path)
    storage.write(f"{tmp_path}/file", b"")
    with pytest.raises(FatalError, match="STORAGE_UNUSABLE"):
        storage.write(f"{tmp_path}/file/below", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="the file system of processes is Linux's")
def test_a_folder_that_cant_be_made_is_no_missing_object() -> None:
    with pytest.raises(FatalError, match=r"STORAGE_UNUSABLE.*the folder can't be made"):
        Storage().write("/proc/nowhere/file", b"")
