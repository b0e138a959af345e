"""Stores that break one promise each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.stores import Storage, StoredObject

_MEANWHILE = 0.02
"""Seconds between a look and the write that follows it."""


class OldReads(Storage):
    """Reads give the first content of a path."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.first: dict[str, bytes] = {}

    def write(self, path: str, data: bytes) -> None:
        self.first.setdefault(path, data)
        super().write(path, data)

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        data, tag = super().read_tagged(path)
        return self.first.get(path, data), tag


class NoIfNoneMatch(Storage):
    """The condition that nothing is there is ignored."""

    def create(self, path: str, data: bytes) -> bool:
        self.write(path, data)
        return True


class NoIfMatch(Storage):
    """The condition of a tag is ignored."""

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:  # noqa: ARG002 - ignored
        self.write(path, data)
        return True


class LateReads(Storage):
    """Who was refused does not see at once what is there."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.hidden: set[str] = set()

    def create(self, path: str, data: bytes) -> bool:
        done = super().create(path, data)
        self.hidden |= set() if done else {path}
        return done

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        if path in self.hidden:
            self.hidden.remove(path)
            raise FileNotFoundError(path)
        return super().read_tagged(path)


class LooksThenCreates(Storage):
    """A put if absent is two steps."""

    def create(self, path: str, data: bytes) -> bool:
        if self.stat(path) is not None:
            return False
        time.sleep(_MEANWHILE)
        self.write(path, data)
        return True


class LooksThenSwaps(Storage):
    """A put on a condition is two steps."""

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:
        try:
            found: str | None = self.read_tagged(path)[1]
        except FileNotFoundError:
            found = None
        if found != tag:
            return False
        time.sleep(_MEANWHILE)
        self.write(path, data)
        return True


class LateListings(Storage):
    """A listing lacks what was created last."""

    last = ""

    def create(self, path: str, data: bytes) -> bool:
        self.last = path
        return super().create(path, data)

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        return (one for one in super().list(folder, after, within) if one.path != self.last)


class OnePage(Storage):
    """A listing ends after a thousand objects."""

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        return (one for number, one in enumerate(super().list(folder, after, within)) if number < 1000)


class NoDeletes(Storage):
    """Deletes are denied."""

    def delete(self, *paths: str) -> None:
        raise FatalError("STORAGE_DENIED", "no permission to delete", where=paths[0])
