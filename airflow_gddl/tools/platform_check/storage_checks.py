"""Checks of the object store or the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from airflow_gddl.contract.codes import S3_CREDENTIALS_REFUSED, STORAGE_DENIED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.stores import read_if_there
from airflow_gddl.tools.platform_check.checks import CheckContext, FoundError, NotTriedError

OBJECTS = 1_050
"""More than one page of a listing."""
_DENIED = {S3_CREDENTIALS_REFUSED, STORAGE_DENIED}


def put(context: CheckContext) -> str:
    """An object is written, read and deleted; puts on a condition replace nothing but what they name."""
    store, path = context.store, context.below("put", "a")
    if not store.create(path, b"first"):
        raise FoundError("a put if absent is refused where nothing is")
    if store.create(path, b"second"):
        raise FoundError("a put if absent is taken where an object is")
    content, tag = store.read_tagged(path)
    _equal(content, b"first", "the first object reads")
    if not store.swap(path, b"third", tag):
        raise FoundError("a put on the condition of the object's tag is refused")
    if store.swap(path, b"fourth", tag):
        raise FoundError("a put on the condition of an older tag is taken")
    _equal(store.read(path), b"third", "the object reads")
    store.delete(path)
    _equal(read_if_there(store, path), None, "an object that was deleted reads")
    return "puts on a condition replaced nothing else"


def lost_answer(context: CheckContext) -> str:
    """Each put is sent twice, as a client does whose answer was lost; nothing between here and the store is broken."""
    store, path = context.store, context.below("lost", "a")
    store.create(path, b"mine")
    if not store.create_once(path, b"mine"):
        raise FoundError("a put if absent that was repeated is not known to be done")
    if store.create_once(path, b"another's"):
        raise FoundError("the object of another writer is taken for one's own")
    _, tag = store.read_tagged(path)
    store.swap(path, b"changed", tag)
    if not store.swap_once(path, b"changed", tag):
        raise FoundError("a put with a tag that was repeated is not known to be done")
    return "repeated puts were known to be done"


def listing(context: CheckContext) -> str:
    """More than a page of objects, written just before, are listed in order, and gone once they are deleted."""
    store, folder = context.store, context.below("many")
    names = [f"{number:05d}" for number in range(OBJECTS)]
    paths = [context.below("many", name) for name in names]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: store.write(path, b"x"), paths))
    found = [one.name for one in store.list(folder)]
    if found != names:
        missing = len(set(names) - set(found))
        raise FoundError(f"a listing of {OBJECTS} objects has {len(found)}, lacks {missing}, or is not in order")
    later = [one.name for one in store.list(folder, after=names[1000])]
    if later != names[1001:]:
        raise FoundError(f"a listing after the object {names[1000]} has {len(later)} of {OBJECTS - 1001}")
    store.delete(*paths[:1000])
    store.delete(*paths[1000:])
    if left := sum(1 for _ in store.list(folder)):
        raise FoundError(f"{left} of {OBJECTS} objects are there after they were deleted")
    return f"{OBJECTS} objects listed and deleted"


def denied(context: CheckContext) -> str:
    """Who has no right is refused with a code of rights: another would lead its reader astray."""
    path = context.below("denied", "a")
    context.store.write(path, b"secret")
    if context.on_s3:
        return _refused(lambda: context.unsigned.read(path))
    if os.geteuid() == 0:
        raise NotTriedError("all-rights")
    folder = Path(path).parent
    folder.chmod(0)
    try:
        return _refused(lambda: context.store.read(path))
    finally:
        folder.chmod(0o700)


def _refused(read: Callable[[], bytes]) -> str:
    try:
        read()
    except FatalError as error:
        if error.code in _DENIED:
            return f"refused with {error.code}"
        raise FoundError(f"it is refused, with another code: {error}") from error
    raise FoundError("an object was read without a right to it")


def _equal(found: bytes | None, wanted: bytes | None, what: str) -> None:
    if found != wanted:
        raise FoundError(f"{what} {found!r}, not {wanted!r}")


PROBES: Mapping[str, Callable[[CheckContext], str]] = {
    "storage.put": put,
    "storage.lost_answer": lost_answer,
    "storage.listing": listing,
    "storage.denied": denied,
}
