"""What only a file system can do: links, vanishing files, walks that skip, writes that fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Thread
from typing import NoReturn

import pytest

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.stores import Storage
from airflow_gddl.stores import local as storage_local
from tests.harness.landing_folder import counted_stats


def test_local_listing_follows_links_but_not_upwards(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "real").write_text("content")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "a-link").symlink_to(tmp_path / "data" / "real")
    (tmp_path / "table" / "b-folder").symlink_to(tmp_path / "data")
    (tmp_path / "table" / "c-broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "table" / "d-loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "table" / "e-pipe")
    root = str(tmp_path / "table")
    found = list(Storage().list(root))
    assert [(item.path.removeprefix(f"{root}/"), item.size) for item in found] == [("a-link", 7), ("b-folder/real", 7)]


def test_local_listing_survives_files_and_folders_that_vanish(tmp_path: Path) -> None:
    storage = Storage()
    for name in ("a", "b", "c/x", "c/y", "d/x"):
        storage.write(f"{tmp_path}/{name}", b"")
    seen = []
    for item in storage.list(str(tmp_path)):
        seen.append(item.path.removeprefix(f"{tmp_path}/"))
        if seen[-1] == "a":
            (tmp_path / "b").unlink()
            (tmp_path / "d" / "x").unlink()
            (tmp_path / "d").rmdir()
        if seen[-1] == "c/x":
            (tmp_path / "c" / "y").unlink()
    assert seen == ["a", "c/x"]


def test_local_listing_does_nothing_for_what_lies_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    for day in range(1, 29):
        for hour in range(10):
            storage.write(f"{tmp_path}/2024/01/{day:02d}/202401{day:02d}-{hour:02d}", b"")
    scanned: list[str] = []
    scandir = os.scandir

    def counting_scandir(path: str) -> object:
        scanned.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting_scandir)
    stated = counted_stats(monkeypatch)
    found = list(storage.list(str(tmp_path), "2024/01/28/20240128-05"))
    assert len(found) == 4
    assert [path.removeprefix(str(tmp_path)) for path in scanned] == ["/", "/2024/", "/2024/01/", "/2024/01/28/"]
    assert len(stated) == 4


def test_an_atomic_write_leaves_the_old_content_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    storage.write(f"{tmp_path}/x", b"old")

    def full(_: str, __: bytes) -> NoReturn:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(storage_local, "put", full)
    with pytest.raises(RetriableError, match="DISK_FULL"):
        storage.write(f"{tmp_path}/x", b"new")
    monkeypatch.undo()
    assert storage.read(f"{tmp_path}/x") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_create_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: str, __: str) -> NoReturn:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    assert storage_local.create(f"{tmp_path}/x", b"first")
    assert not storage_local.create(f"{tmp_path}/x", b"second")
    assert storage_local.read(f"{tmp_path}/x")[0] == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_what_must_not_be_read_comes_as_refused_within_bounds(tmp_path: Path) -> None:
    landing, outside = tmp_path / "landing", tmp_path / "outside"
    (landing / "t").mkdir(parents=True)
    outside.mkdir()
    (outside / "x").write_text("secret")
    (landing / "t" / "a").write_text("fine")
    (landing / "t" / "b").symlink_to(outside / "x")
    (landing / "t" / "c").symlink_to(outside)
    (landing / "linked").symlink_to(outside)
    Path(os.fsdecode(os.fsencode(landing / "t") + b"/d\xff")).write_text("odd")
    storage, out = Storage(), "a link that leaves the landing folder"
    found = {item.name: item.refused for item in storage.list(f"{landing}/t", within=str(landing))}
    assert found == {"a": "", "b": out, "c": out, "d\\xff": "its name is not UTF-8"}
    assert [(item.path, item.refused) for item in storage.list(f"{landing}/linked", within=str(landing))] == [
        (f"{landing}/linked", out)
    ]
    assert [item.name for item in storage.list(f"{landing}/t")] == ["a", "b", "c/x"]
    found = [storage.stat(f"{landing}/t/{name}", str(landing)) for name in ("a", "b")]
    assert [item is not None and item.refused for item in found] == ["", out]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    assert Storage().stat(f"{tmp_path}/folder") is None
    for path in ("folder", "file/below"):
        with pytest.raises(FileNotFoundError):
            Storage().read(f"{tmp_path}/{path}")
    with pytest.raises(FatalError, match="STORAGE_UNUSABLE"):  # it would look like an empty folder
        list(Storage().list(f"{tmp_path}/file"))


def test_swap_has_one_winner_among_threads(tmp_path: Path) -> None:
    storage, path = Storage(), f"{tmp_path}/x"

    def count() -> None:
        for _ in range(20):
            while True:
                data, tag = storage.read_tagged(path)
                if storage.swap(path, b"%d" % (int(data) + 1), tag):
                    break

    storage.write(path, b"0")
    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.read(path) == b"80"


def test_a_link_to_itself_hides_no_file(tmp_path: Path) -> None:
    files = [f"f{number:02d}" for number in range(40)]
    for name in files:
        (tmp_path / name).write_text("")
        (tmp_path / f"loop-{name}").symlink_to(tmp_path / f"loop-{name}")
    assert [item.name for item in Storage().list(str(tmp_path))] == files
    with pytest.raises(RetriableError, match="STORAGE_BUSY"):
        list(Storage().list(f"{tmp_path}/loop-f00"))
    with pytest.raises(FatalError, match=r"STORAGE_UNUSABLE.*a loop of links"):
        list(Storage().list(f"{tmp_path}/loop-f00", within=str(tmp_path)))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("method", ["write", "create", "swap", "copy"])
def test_a_full_disk_is_named_by_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, number: int
) -> None:
    def fails(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    source, target = f"{tmp_path}/source", f"{tmp_path}/target"
    Storage().write(source, b"x")
    arguments = {"write": (target, b""), "create": (target, b""), "swap": (target, b"", None), "copy": (source, target)}
    monkeypatch.setattr(storage_local, "put", fails)
    with pytest.raises(
        RetriableError, match=rf"DISK_FULL.*{os.strerror(number)}.*(source|target).*Remedy: free space there"
    ):
        getattr(Storage(), method)(*arguments[method])
    assert not Path(target).exists()
