"""The folder of a check, its bounds, and the removal of what it made."""

from __future__ import annotations

import math
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.layout import CHECKS as FOLDER
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.source_access import announced
from airflow_gddl.contract.spec import Roots
from airflow_gddl.platform_check.checks import FoundError, NotTriedError, Origin
from airflow_gddl.runners.interface import Connections, FromEnvironment
from airflow_gddl.stores import Storage, open_store

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata

_NAME = re.compile(r"[A-Za-z0-9-]+")
_DELETED_AT_ONCE = 1000
_LOGINS = ("AWS_PROFILE", "AWS_ROLE_ARN", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Variables of the caller's own rights."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The most that a check takes.

    Attributes:
        minutes: no check begins after them, and a job is stopped.
        requests: to the object store by the checks of storage in one process, about.
        job_requests: by the jobs, and by what reads their tables.
        objects: that are there at once.
        jobs: that the runner starts.
    """

    minutes: float = 30.0
    requests: int = 2_500
    job_requests: int = 4_000
    objects: int = 2_000
    jobs: int = 8

    def all_requests(self, processes: int = 1) -> int:
        """Requests of a check whose storage is tried by so many processes."""
        return processes * self.requests + self.job_requests


def dollars(requests: int) -> float:
    """Price of requests in whole cents, rounded up, if each were a put: 5 USD for a million in most regions."""
    return math.ceil(requests * 5e-4) / 100


@dataclass(frozen=True)
class CheckPlace:
    """A folder of its own below the lake.

    Attributes:
        lake: root of the user's lake.
        name: of the folder; letters, digits and `-`.
    """

    lake: str
    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"not a name of a folder: {self.name!r}")

    @property
    def root(self) -> str:
        return join(self.lake, FOLDER, self.name)

    def below(self, *parts: str) -> str:
        return join(self.root, *parts)

    def roots(self, lake: str = "lake") -> Roots:
        """Landing and lake of the jobs."""
        return Roots(landing=self.below("landing"), lake=self.below(lake))


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """What the checks work with.

    Attributes:
        loaded: the user's metadata: roots, runner, tiers, catalogs.
        store: reaches the lake.
        anonymous: a store with credentials that nobody knows, which must be refused.
        unsigned: a store without credentials, which must be refused.
        clock: seconds, monotonic.
        poll_seconds: between the first two polls of a remote job.
        end_seconds: how long a remote run that was stopped may take to end, after the checks.
        claim_seconds: after which claims of a process elsewhere that was killed have expired.
    """

    cli: CliContext
    loaded: LoadedMetadata
    place: CheckPlace
    store: Storage
    anonymous: Callable[[], Storage]
    unsigned: Callable[[], Storage]
    bounds: Bounds = field(default_factory=Bounds)
    origin: Origin = "here"
    connections: Connections = field(default_factory=FromEnvironment)
    clock: Callable[[], float] = time.monotonic
    begun: float = field(default_factory=time.monotonic)
    poll_seconds: float = 5.0
    end_seconds: float = 120.0
    claim_seconds: float = 65.0

    @property
    def seconds_left(self) -> float:
        return self.begun + 60 * self.bounds.minutes - self.clock()

    def require_time(self) -> None:
        """
        Raises:
            NotTriedError: `time`.
        """
        if self.seconds_left <= 0:
            raise NotTriedError("time")

    @property
    def on_s3(self) -> bool:
        return is_s3(self.place.lake)


def context_of(
    cli: CliContext, loaded: LoadedMetadata, bounds: Bounds, *, name: str = "", origin: Origin = "here"
) -> CheckContext:
    """What the checks of this process work with.

    Args:
        name: of the folder; empty: a new one.
    """
    environ = announced(loaded.access, cli.environ)
    return CheckContext(
        cli=cli,
        loaded=loaded,
        place=CheckPlace(loaded.roots.lake, name or cli.run_id()),
        store=open_store(environ),
        anonymous=lambda: open_store(of_nobody(environ)),
        unsigned=lambda: open_store({**of_nobody(environ), "AWS_SKIP_SIGNATURE": "true"}),
        bounds=bounds,
        origin=origin,
    )


def of_nobody(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with keys that no account has."""
    kept = {name: value for name, value in environ.items() if name not in _LOGINS}
    key, secret = f"GDDLCHECK{secrets.token_hex(5).upper()}", secrets.token_hex(20)
    return {**kept, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}


def remove(context: CheckContext) -> None:
    """Remove the folder of the check.

    Raises:
        FoundError: what is left, and how to remove it.
    """
    root = context.place.root
    try:
        _empty(context.store, root)
        left = context.store.exists(root)
    except Exception as error:
        raise FoundError(f"{root} can't be removed: {error}. {by_hand(root)}") from error
    if left:
        raise FoundError(f"{root} is still there. {by_hand(root)}")
    if not context.on_s3:
        context.store.prune(root, context.place.lake)


def _empty(store: Storage, root: str) -> None:
    if not is_s3(root):
        shutil.rmtree(root, ignore_errors=not Path(root).exists())
        return
    paths = [found.path for found in store.list(root)]
    for start in range(0, len(paths), _DELETED_AT_ONCE):
        store.delete(*paths[start : start + _DELETED_AT_ONCE])


def by_hand(root: str) -> str:
    """The command that removes a folder of a check, and nothing else where its path holds blanks."""
    if is_s3(root):
        return f"Remove it with `aws s3 rm --recursive {shlex.quote(f'{root}/')}`"
    return f"Remove it with `rm -r {shlex.quote(root)}`"


def of_earlier_checks(store: Storage, place: CheckPlace) -> list[str]:
    """Folders that other checks left, or work in."""
    names = folders_of_checks(store, place.lake)
    return [join(place.lake, FOLDER, name) for name in names if name != place.name]


def folders_of_checks(store: Storage, lake: str) -> tuple[str, ...]:
    """Names of the folders that checks made and did not remove yet. A folder of another name is none of theirs: whoever
    writes to the lake could put a command into it, which would then be shown beside ours."""
    return tuple(name for name in store.folders(join(lake, FOLDER)) if _NAME.fullmatch(name))


Probe = Callable[[CheckContext], Any]
"""Makes a check: returns a finding, raises `FoundError`, `NotTriedError`, `ProbeSkippedError` or a `GddlError`."""
