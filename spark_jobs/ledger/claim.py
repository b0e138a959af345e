"""One run at a time per table: numbered claims, the highest of which holds (semantics, rule 13).

A claim is put if absent, so of two processes that want the same number one gets it. It is renewed every 15 seconds and
void 60 seconds after its last renewal, at once when released or when its process is known to be dead. Expiry compares
the holder's clock with ours: up to 45 seconds of difference do no harm. Beyond that a running holder can be overtaken;
it then notices at `check` (a batch from 15 seconds after its claim on), and a commit that slips through all the same
fails on the put-if-absent of the Delta log or of the ledger. A claim from the future, made before a clock was set back,
is void if it isn't renewed during one `ttl` in which it is watched.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import CLAIM_DAMAGED, CLAIM_LOST, TABLE_BUSY
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage, StoredObject, read_if_there


def is_linux() -> bool:
    """Whether the kernel says what a process is, beside what psutil does."""
    return sys.platform == "linux"


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """A process, unique until the machine's next boot.

    Attributes:
        boot: the boot and the process-id namespace (containers of one machine share the boot, not the ids); empty where
            the system doesn't say, and then nothing is concluded from a process id.
        started: start time, on Linux in the kernel's ticks; a reused process id has another start time.
    """

    host: str
    boot: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> ProcessIdentity:
        pid = os.getpid()
        return cls(host=socket.gethostname(), boot=_boot(), pid=pid, started=_started(pid) or "")

    def is_known_dead(self, observer: ProcessIdentity) -> bool:
        """True only for certain: same host, boot and namespace as the observer, and the process has ended."""
        comparable = (self.host, self.boot) == (observer.host, observer.boot) and self.boot != "" and self.started != ""
        return comparable and _started(self.pid) != self.started


def _boot() -> str:
    if not is_linux():
        return f"{psutil.boot_time():.0f}"  # this system has no process-id namespaces
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """None when there is no such process or it is a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return _ticks(pid) if is_linux() else repr(process.create_time())
    except (psutil.NoSuchProcess, OSError):
        return None


def _ticks(pid: int) -> str:
    """Field 22 of `/proc/<pid>/stat`, since boot: psutil adds the time of boot, which moves with the clock."""
    # The second field, the name in parentheses, may itself hold spaces and parentheses.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


TTL_SECONDS = 60.0
RENEWAL_SECONDS = 15.0
YOUNG_SECONDS = 15.0
"""In this time no other run finds a new claim void, even if its clock is 45 seconds ahead."""
_LONGEST_TTL_SECONDS = 3600.0
_FURTHEST_AHEAD = timedelta(days=1)
"""What a clock may be set back by; a claim from later on is no run's."""
_POLL_SECONDS = 0.5
RELEASE_RETRY_SECONDS = 1.0
_DIGITS = 20
_FOLDER = "claims"
_NAME = re.compile(r"claims/([0-9]+)\.json")
_LAST = 10**_DIGITS - 1
_LOG = logging.getLogger(__name__)

Clock = Callable[[], datetime]
Listing = Mapping[str, StoredObject | None]
"""Names below a state folder, and each as it was listed; None: it was written here since."""


@dataclass(frozen=True, kw_only=True)
class ClaimDocument:
    """Content of a claim: its holder.

    Attributes:
        token: distinguishes two claims of one run.
        renewed_at: ISO 8601 UTC with microseconds, by the holder's clock.
        ttl: seconds after `renewed_at` for which the claim is good.
    """

    run_id: str
    token: str
    process: ProcessIdentity
    renewed_at: str
    ttl: float
    released: bool = False

    def age(self, now: datetime) -> float:
        """Seconds since the last renewal; negative where the holder's clock is ahead.

        Raises:
            ValueError: not a time, or one without a zone.
        """
        renewed = datetime.fromisoformat(self.renewed_at)
        if renewed.tzinfo is None:
            raise ValueError(f"renewed_at {self.renewed_at!r} has no time zone")
        return (now - renewed).total_seconds()

    def require_possible(self, now: datetime) -> None:
        """Check a claim's times; one that could never expire was not written by a run.

        Raises:
            ValueError: the invalid field.
        """
        if not 0 < self.ttl <= _LONGEST_TTL_SECONDS:  # false for a number that is none, too
            raise ValueError(f"ttl {self.ttl!r} is not between 0 and {_LONGEST_TTL_SECONDS:.0f} seconds")
        if -self.age(now) > _FURTHEST_AHEAD.total_seconds():
            raise ValueError(f"renewed_at {self.renewed_at!r} is in the future; it is {now.isoformat()}")

    def is_ahead(self, now: datetime) -> bool:
        """Whether it was renewed further in the future than clocks differ, so that its age says nothing."""
        return -self.age(now) > TTL_SECONDS

    def is_void(self, now: datetime, observer: ProcessIdentity) -> bool:
        return self.released or self.age(now) > self.ttl or self.process.is_known_dead(observer)


class Claim:
    """A held claim; a context manager that releases it. Made by `acquire`."""

    def __init__(self, claims: _Claims, number: int, document: ClaimDocument, listed: frozenset[str]) -> None:
        self._claims, self._number, self._document = claims, number, document
        self._first = document
        self.listed = listed
        """Names below the table's state folder when the claim was confirmed; claims among them."""
        self._write = threading.Lock()
        self._stop = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"claim-{document.run_id}", daemon=True)
        self._heart.start()

    @classmethod
    def acquire(
        cls,
        storage: Storage,
        root: str,
        run_id: str,
        clock: Clock,
        wait_seconds: float = 0.0,
        listed: Listing | None = None,
    ) -> Claim:
        """Claim the table whose state folder is `root`.

        Args:
            clock: aware times; compared with other holders' clocks.
            wait_seconds: seconds to wait for an active holder; 0: don't wait, but that a claim whose
                renewal lies in the future is watched for its time to live.
            listed: names below `root` as they were listed before; None: they are listed.

        Raises:
            RetriableError: `TABLE_BUSY`, naming the holder.
            FatalError: `CLAIM_DAMAGED`, naming the file.
        """
        claims = _Claims(storage, root, clock)
        me = ProcessIdentity.current()
        began, first = time.monotonic(), None
        while True:
            number, holder = claims.highest(listed)
            known = listed if holder is not None and holder.released else None
            listed, first = None, first or (number, holder)
            # A living holder of a claim from the future renews it.
            is_silent = holder is not None and holder.is_ahead(clock()) and (number, holder) == first
            if holder is None or holder.is_void(clock(), me) or (is_silent and time.monotonic() - began > holder.ttl):
                mine = claims.document(run_id, me)
                try:
                    there = claims.take(number + 1, mine, known)
                    if there is not None:
                        return cls(claims, number + 1, mine, there)
                except GddlError:  # the claim may be there all the same
                    _in_background(partial(claims.withdraw, number + 1, mine))
                    raise
            elif is_silent:
                time.sleep(min(_POLL_SECONDS, holder.ttl))
            elif (left := began + wait_seconds - time.monotonic()) <= 0:
                raise _busy(holder, clock(), root)
            else:
                time.sleep(min(_POLL_SECONDS, left))

    def check(self) -> None:
        """Check that the claim still holds; called before each write that others rely on.

        Raises:
            RetriableError: `CLAIM_LOST` when another run has taken over.
        """
        if not self._claims.is_highest(self._number, self._document.token):
            newer = max(self._claims.numbers(), default=self._number)
            what = f"run {self._document.run_id!r} lost the table to claim {newer}, being silent for too long"
            raise RetriableError(CLAIM_LOST, what, where=self._claims.folder, remedy="run again; nothing is lost")

    def check_unless_young(self) -> None:
        """`check`; reads nothing in the first `YOUNG_SECONDS` of the claim, in which no run can have taken over."""
        if not 0 <= self._first.age(self._claims.clock()) < YOUNG_SECONDS:
            self.check()

    def release(self) -> None:
        """Release the claim; idempotent."""
        self._stop.set()
        with self._write:
            if not self._document.released:
                released = replace(self._document, released=True)
                self._claims.write(self._number, released)
                self._document = released

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """
        Raises:
            RetriableError: `CLAIM_LOST` in place of an error of a run that was overtaken: what it has read of the
                ledger and found in the tables is no longer of one moment.
        """
        lost = self._lost() if isinstance(error, Exception) and not self._document.released else None
        try:
            self.release()
        except GddlError as problem:  # the run's outcome takes precedence
            _LOG.warning("claim not released; tried again until it expires in %s s: %s", TTL_SECONDS, problem)
            _in_background(self.release)
        if lost is not None:
            raise lost from error

    def _lost(self) -> GddlError | None:
        """The error of `check`; None: the claim holds, or that can't be found out."""
        try:
            self.check()
        except GddlError as problem:
            return problem if problem.code == CLAIM_LOST else None
        return None

    def _beat(self) -> None:
        while not self._stop.wait(RENEWAL_SECONDS):
            with self._write:
                if self._document.released:
                    return
                self._document = replace(self._document, renewed_at=self._claims.now())
                try:
                    if not self._claims.renew(self._number, self._document):
                        return  # the next `check` says so
                except GddlError as problem:  # the next renewal comes before the claim expires
                    _LOG.warning("claim not renewed: %s", problem)


@dataclass(frozen=True)
class _Claims:
    """The numbered claims of a table, below its state folder.

    A claim removes those before it, oldest first, and `renew` brings none back; `release` and
    `withdraw` may, but a released one, which is void. So the claim of a number is the
    highest where the next number is free and its own is still there, asked in this order.
    """

    storage: Storage
    root: str
    clock: Clock

    @property
    def folder(self) -> str:
        return join(self.root, _FOLDER)

    def now(self) -> str:
        return self.clock().astimezone(UTC).isoformat(timespec="microseconds")

    def document(self, run_id: str, me: ProcessIdentity) -> ClaimDocument:
        return ClaimDocument(run_id=run_id, token=uuid.uuid4().hex, process=me, renewed_at=self.now(), ttl=TTL_SECONDS)

    def name(self, number: int) -> str:
        return f"{_FOLDER}/{number:020d}.json"

    def path(self, number: int) -> str:
        return join(self.root, self.name(number))

    def numbers(self) -> list[int]:
        return _numbers_in(self.root, (f"{_FOLDER}/{item.name}" for item in self.storage.list(self.folder)))

    def highest(self, listed: Iterable[str] | None = None) -> tuple[int, ClaimDocument | None]:
        """Number and document of the holder; 0 and None when there is none.

        Args:
            listed: see `Claim.acquire`.
        """
        numbers = self.numbers() if listed is None else _numbers_in(self.root, listed)
        while True:
            number = max(numbers, default=0)
            if number == 0:
                return 0, None
            try:
                data = self.storage.read(self.path(number))
            except FileNotFoundError:  # removed by its successor meanwhile
                numbers = self.numbers()
                continue
            return number, self._decode(number, data)

    def take(self, number: int, document: ClaimDocument, known: Listing | None) -> frozenset[str] | None:
        """Claim `number` and remove superseded claims; None when another run was faster.

        Args:
            known: names below the state folder, listed before the claim before was read, which was released; None:
                they are listed.

        Returns:
            names below the state folder.
        """
        path = self.path(number)
        if not self.storage.create_once(path, codec.to_document(document).encode()):
            return None
        # The number may have been used and cleaned up while we read the listing: then a higher one holds, and the
        # claim before is gone, or was brought back. Else that was released when it was listed: no run came since.
        if known is None or not self._is_unchanged(number - 1, known):
            known = {item.name: item for item in self.storage.list(self.root)}
        there = frozenset(known)
        numbers = _numbers_in(self.root, there)
        if max(numbers, default=number) > number:
            self.storage.delete(path)
            return None
        for old in sorted(numbers):
            if old < number:
                self.storage.delete(self.path(old))
        return there

    def _is_unchanged(self, number: int, known: Listing) -> bool:
        """Whether a claim was not written since it was listed; the time of one object may be less precise."""
        was, now = known.get(self.name(number)), self.storage.stat(self.path(number))
        return was is not None and now is not None and was.etag == now.etag and abs(was.modified - now.modified) < 1

    def is_highest(self, number: int, token: str) -> bool:
        """Whether this claim, of this token, holds."""
        if read_if_there(self.storage, self.path(number + 1)) is not None:
            return False
        data = read_if_there(self.storage, self.path(number))
        return data is not None and _is_of(data, token)

    def renew(self, number: int, document: ClaimDocument) -> bool:
        """Renew a claim; False where it is gone: nothing is written then.

        A swap that was done, and whose response was lost, is refused when it is tried again.
        """
        try:
            data, tag = self.storage.read_tagged(self.path(number))
        except FileNotFoundError:
            return False
        if not _is_of(data, document.token):
            return False
        return self.storage.swap_once(self.path(number), codec.to_document(document).encode(), tag)

    def withdraw(self, number: int, document: ClaimDocument) -> None:
        """Release a claim that was asked for, if the store has it."""
        if read_if_there(self.storage, self.path(number)) == codec.to_document(document).encode():
            self.write(number, replace(document, released=True))

    def write(self, number: int, document: ClaimDocument) -> None:
        self.storage.write(self.path(number), codec.to_document(document).encode())

    def _decode(self, number: int, data: bytes) -> ClaimDocument:
        try:
            document = codec.from_json(ClaimDocument, data.decode())
            if not document.released:
                document.require_possible(self.clock())
        except (FatalError, ValueError, OverflowError, RecursionError) as error:
            raise _damaged(self.path(number), str(error)) from error
        return document


def _in_background(release: Callable[[], None]) -> None:
    """Call it until the store is back or the claim expires, so that the next run need not wait for that."""

    def work() -> None:
        deadline = time.monotonic() + TTL_SECONDS
        while time.monotonic() < deadline:
            time.sleep(RELEASE_RETRY_SECONDS)
            with suppress(GddlError):
                release()
                return

    threading.Thread(target=work, name="claim-release", daemon=True).start()


def _is_of(data: bytes, token: str) -> bool:
    """Whether a claim was made with this token, whatever its times say: a clock may have been set since."""
    with suppress(ValueError, AttributeError):
        return bool(json.loads(data).get("token") == token)
    return False


def _numbers_in(root: str, names: Iterable[str]) -> list[int]:
    """Numbers of claims among names below a state folder; other files are passed over.

    Raises:
        FatalError: `CLAIM_DAMAGED` for a number that no run gives, or that none can follow.
    """
    numbers = []
    for name in names:
        if (match := _NAME.fullmatch(name)) is None:
            continue
        if len(match[1]) != _DIGITS or int(match[1]) == _LAST:
            raise _damaged(join(root, name), f"no run makes a claim of number {match[1]}")
        numbers.append(int(match[1]))
    return numbers


def _damaged(path: str, what: str) -> FatalError:
    remedy = (
        f"stop the table's runs, then delete {path}: a claim says which run works on the table, and nothing of its "
        "data, so that nothing is lost; the next run makes one of its own"
    )
    return FatalError(CLAIM_DAMAGED, what, where=path, remedy=remedy)


def _busy(holder: ClaimDocument, now: datetime, root: str) -> RetriableError:
    process = holder.process
    what = (
        f"run {holder.run_id!r} on {process.host} (pid {process.pid}) holds the table, "
        f"seen {max(0.0, holder.age(now)):.0f} s ago"
    )
    remedy = f"wait, or stop that run; a dead one's claim expires after {timedelta(seconds=holder.ttl)}"
    return RetriableError(TABLE_BUSY, what, where=root, remedy=remedy)
