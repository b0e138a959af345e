"""Checks of the object store or the disk, from whatever process calls them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

from airflow_gddl.cli.check import landings_of, probe_landing
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.source_access import announced
from airflow_gddl.platform_check.checks import FoundError, NotTriedError
from airflow_gddl.platform_check.place import CheckContext, Probe
from airflow_gddl.stores import Storage, read_if_there, update_object

CLAIMANTS, ROUNDS, STEPS = 4, 8, 5
"""Threads that meet, how often they do, and the changes that each makes to one object."""
OBJECTS = 1_050
"""More than one page of a listing."""
_DENIED = {"S3_CREDENTIALS_REFUSED", "STORAGE_DENIED"}


def write(context: CheckContext) -> str:
    store, path = context.store, context.place.below("write", "a")
    store.write(path, b"first")
    store.write(path, b"second")
    _equal(store.read(path), b"second", "an object that was replaced reads")
    store.copy(path, f"{path}-copy")
    _equal(store.read(f"{path}-copy"), b"second", "a copy reads")
    with store.open_input(path) as stream:
        stream.seek(3)
        _equal(stream.read(2), b"on", "a part of an object reads")
    store.delete(path, f"{path}-copy")
    _equal(read_if_there(store, path), None, "an object that was deleted reads")
    return "written, read, copied, deleted"


def landing(context: CheckContext) -> str:
    environ = announced(context.loaded.access, context.cli.environ)
    roots = [root for _, root in landings_of(context.loaded)]
    for root in roots:
        probe_landing(root, environ)
    return f"{len(roots)} listed"


def create(context: CheckContext) -> str:
    store, path = context.store, context.place.below("create", "a")
    if not store.create(path, b"first"):
        raise FoundError("a put if absent is refused where nothing is")
    if store.create(path, b"second"):
        raise FoundError("a put if absent is taken where an object is")
    _equal(store.read(path), b"first", "the first object reads")
    return "the second put was refused"


def swap(context: CheckContext) -> str:
    store, path = context.store, context.place.below("swap", "a")
    store.write(path, b"first")
    _, tag = store.read_tagged(path)
    if not store.swap(path, b"second", tag):
        raise FoundError("a put on the condition of the object's tag is refused")
    if store.swap(path, b"third", tag):
        raise FoundError("a put on the condition of an older tag is taken")
    _equal(store.read(path), b"second", "the object reads")
    if store.swap(path, b"fourth", None):
        raise FoundError("a put on the condition that nothing is there is taken")
    return "the put with an older tag was refused"


def lost_answer(context: CheckContext) -> str:
    """Each put is sent twice, as a client does whose answer was lost; nothing between here and the store is broken."""
    store, folder = context.store, context.place.below("lost")
    for number in range(ROUNDS):
        path, mine = join(folder, str(number)), f"mine {number}".encode()
        store.create(path, mine)
        if not store.create_once(path, mine):
            raise FoundError("a put if absent that was repeated is not known to be done")
        if store.create_once(path, b"another's"):
            raise FoundError("the object of another writer is taken for one's own")
        _, tag = store.read_tagged(path)
        store.swap(path, b"changed", tag)
        if not store.swap_once(path, b"changed", tag):
            raise FoundError("a put with a tag that was repeated is not known to be done")
    return f"{2 * ROUNDS} repeated puts were known to be done"


def claims(context: CheckContext) -> str:
    store, folder = context.store, context.place.below("claims")
    for number in range(ROUNDS):
        path = join(folder, f"{number}.json")
        won = _at_once(partial(_claim, store, path))
        holders = [who for who, has in enumerate(won) if has]
        if len(holders) != 1:
            raise FoundError(f"of {CLAIMANTS} that claimed at once {len(holders)} got it")
        _equal(store.read(path), f"claim of {holders[0]}".encode(), "the claim reads")
    return f"{ROUNDS} times one of {CLAIMANTS}"


def updates(context: CheckContext) -> str:
    """Each thread appends lines of its own: a count could hide one that was lost by one that was made twice."""
    store, path = context.store, context.place.below("updates", "lines")

    def append(who: int) -> bool:
        for number in range(STEPS):
            update_object(store, path, partial(_with_line, f"{who}.{number}\n".encode()), bytes)
        return True

    _at_once(append)
    wanted = sorted(f"{who}.{number}" for who in range(CLAIMANTS) for number in range(STEPS))
    found = sorted(store.read(path).decode().split())
    if found != wanted:
        raise FoundError(f"of {len(wanted)} changes {len(set(wanted) & set(found))} are there, {len(found)} in all")
    return f"{len(wanted)} changes by {CLAIMANTS} at once"


def _claim(store: Storage, path: str, who: int) -> bool:
    return store.create_once(path, f"claim of {who}".encode())  # as `Claim` of a job does


def _with_line(line: bytes, before: bytes | None) -> bytes:
    return (before or b"") + line


def fresh(context: CheckContext) -> str:
    store, folder = context.store, context.place.below("fresh")
    for number in range(ROUNDS):
        path = join(folder, f"{number}.json")
        store.create(path, b"new")
        if path not in {one.path for one in store.list(folder)}:
            raise FoundError("a listing lacks an object that was written before it")
        store.delete(path)
        if path in {one.path for one in store.list(folder)}:
            raise FoundError("a listing shows an object that was deleted before it")
    return f"{2 * ROUNDS} listings"


def listing(context: CheckContext) -> str:
    store, folder = context.store, context.place.below("many")
    names = [f"{number:05d}" for number in range(OBJECTS)]
    paths = [join(folder, name) for name in names]
    pool = ThreadPoolExecutor(8)
    try:
        for _ in pool.map(lambda path: store.write(path, b"x"), paths):
            context.require_time()
    finally:
        pool.shutdown(cancel_futures=True)
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
    path = context.place.below("denied", "a")
    context.store.write(path, b"secret")
    if not context.on_s3:
        folder = Path(path).parent
        if os.geteuid() == 0:
            raise NotTriedError("all-rights")
        folder.chmod(0)
        try:
            return _refused(lambda: context.store.read(path))
        finally:
            folder.chmod(0o700)
    _refused(lambda: context.unsigned().read(path))  # S3 refuses keys that it does not know in a public bucket, too
    return _refused(lambda: context.anonymous().read(path))


def _refused(read: Callable[[], bytes]) -> str:
    try:
        read()
    except FatalError as error:
        if error.code in _DENIED:
            return f"refused with {error.code}"
        raise FoundError(f"it is refused, with another code: {error}") from error
    raise FoundError("an object was read without a right to it")


def _at_once(work: Callable[[int], bool]) -> list[bool]:
    """What each of the threads gives, which begin together."""
    barrier = Barrier(CLAIMANTS)

    def begin(who: int) -> bool:
        barrier.wait(60)
        return work(who)

    with ThreadPoolExecutor(CLAIMANTS) as pool:
        return list(pool.map(begin, range(CLAIMANTS)))


def _equal(found: bytes | None, wanted: bytes | None, what: str) -> None:
    if found != wanted:
        raise FoundError(f"{what} {found!r}, not {wanted!r}")


PROBES: Mapping[str, Probe] = {
    "storage.write": write,
    "storage.landing": landing,
    "storage.create": create,
    "storage.swap": swap,
    "storage.lost_answer": lost_answer,
    "storage.claims": claims,
    "storage.updates": updates,
    "storage.fresh": fresh,
    "storage.listing": listing,
    "storage.denied": denied,
}
