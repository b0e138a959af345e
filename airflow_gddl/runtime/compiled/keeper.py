"""Compiles the metadata again when it changed; keeps the last good one when it can't be read.

Reads of a parse have one time budget: Airflow ends the parse of a DAG file after `dagbag_import_timeout` and reports
nothing but that. A store that accepts connections and never answers must cost less.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from airflow_gddl import __version__
from airflow_gddl.contract.basics import CONTRACT_VERSION
from airflow_gddl.contract.codes import METADATA_UNREACHABLE, PLACEMENT_DAMAGED
from airflow_gddl.contract.errors import GddlError, MetadataError, RetriableError
from airflow_gddl.runtime.compiled.cache import FORMAT, Cache, CompiledSettings, State
from airflow_gddl.stores import open_store

if TYPE_CHECKING:
    from airflow_gddl.metadata.folder import Folder
    from airflow_gddl.runtime.compiled.documents import Compiled
    from airflow_gddl.topology.placement import Placement

Answer = TypeVar("Answer")

_REMEDY = "check the disk, the network, and for S3 the endpoint, AWS_ENDPOINT_URL or the connection of aws_conn_id"


def bounded(call: Callable[[], Answer], seconds: float, where: str, environ: Mapping[str, str]) -> Answer:
    """The call's answer or error.

    A hanging thread is abandoned; it is a daemon, so it does not block the exit of the process.

    Args:
        environ: how S3 is reached, for the error; read in the thread, since it may be that of a connection.

    Raises:
        RetriableError: `METADATA_UNREACHABLE` after `seconds`.
    """
    answer: Future[Answer] = Future()
    endpoints: list[str] = []

    def run() -> None:
        try:
            if is_remote(where):
                from airflow_gddl.contract.s3 import S3Settings  # noqa: PLC0415 - of remote places alone

                endpoints.append(f"S3 at {S3Settings.of(environ).endpoint or 'Amazon'}")
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - handed to the caller as it is
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name="gddl-metadata").start()
    wait((answer,), seconds)
    if not answer.done():
        what = f"no answer {f'of {endpoints[0]} ' if endpoints else ''}within {seconds:.2g} s"
        raise RetriableError(METADATA_UNREACHABLE, what, where=where, remedy=_REMEDY)
    return answer.result()


@dataclass
class Reads:
    """Reads that share one time budget.

    Attributes:
        left: seconds that they may still take together.
    """

    left: float

    def call(
        self, read: Callable[[], Answer], where: str, environ: Mapping[str, str], *, most: float = float("inf")
    ) -> Answer:
        """The answer of a read of `where`, or its error.

        Args:
            most: seconds that it may take, if more are left.

        Raises:
            RetriableError: `METADATA_UNREACHABLE`: no answer in time.
        """
        start = time.monotonic()
        try:
            return bounded(read, max(0.1, min(self.left, most)), where, environ)
        finally:
            self.left -= time.monotonic() - start


_PREFIX, _PLACE = "GDDL_", "GDDL_METADATA"


@dataclass(frozen=True)
class Signature:
    """`text` changes whenever the result of a load may change; `newest`: newest modification time, seconds."""

    text: str
    newest: float


def is_remote(metadata: str) -> bool:
    return "://" in metadata


def sign(metadata: str, environ: Mapping[str, str]) -> Signature:
    """Names, sizes and times of the folder's files, this package's version, and the environment's overrides.

    Raises:
        RetriableError: `METADATA_UNREACHABLE`: the folder is missing or does not respond.
    """
    digest, newest = hashlib.sha256(), 0.0
    overrides = (f"{name}={environ[name]}" for name in sorted(environ) if name.startswith(_PREFIX) and name != _PLACE)
    for line in (f"{__version__} {CONTRACT_VERSION} {FORMAT}", *overrides):
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    for name, size, tag, modified in sorted(_remote(metadata, environ) if is_remote(metadata) else _local(metadata)):
        digest.update(f"{name}\0{size}\0{tag}\n".encode(errors="surrogateescape"))
        newest = max(newest, modified)
    return Signature(digest.hexdigest(), newest)


def _local(metadata: str) -> Iterator[tuple[str, int, str, float]]:
    if not Path(metadata).is_dir():
        remedy = "put the folder there, or set [gddl] metadata or GDDL_METADATA to where it is"
        raise RetriableError(METADATA_UNREACHABLE, "there is no such folder", where=metadata, remedy=remedy)
    for folder, subfolders, names in os.walk(metadata, followlinks=False):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each file would double the cost
            try:
                status = os.stat(path)  # noqa: PTH116 - as above
            except FileNotFoundError:
                continue
            yield path[len(metadata) :], status.st_size, str(status.st_mtime_ns), status.st_mtime


def _remote(metadata: str, environ: Mapping[str, str]) -> Iterator[tuple[str, int, str, float]]:
    from airflow_gddl.metadata.folder import reached  # noqa: PLC0415 - of remote places alone

    with reached(metadata):
        for item in open_store(environ).list(metadata.rstrip("/")):
            yield item.name, item.size, item.etag, item.modified


def tag_of(path: str, environ: Mapping[str, str]) -> str:
    """Version tag of the stored placement; empty where there is none."""
    item = open_store(environ).stat(path)
    return "" if item is None else plain_tag(item.etag)


def plain_tag(tag: str | None) -> str:
    """ETag without the quotes that S3 adds in some responses; empty for None."""
    return (tag or "").strip('"')


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Let Python search for no garbage meanwhile: of ten thousand rows and their DAGs, a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_LOG = logging.getLogger(__name__)
_WHILE_LOCKED = 5.0
"""Seconds of a read while other processes wait for this one to compile."""


@dataclass
class Keeper:
    """Decides between the current generation and a new one; used once."""

    settings: CompiledSettings
    reads: Reads = field(init=False)

    def __post_init__(self) -> None:
        self.reads = Reads(self.settings.time_limit)

    @property
    def cache(self) -> Cache:
        place = hashlib.sha256(self.settings.metadata.encode()).hexdigest()[:16]
        return Cache(self.settings.cache / place, self.settings.metadata)

    def serve(self, *, afresh: bool = False) -> tuple[State, Path | None]:
        state, generation = self.cache.read_state()
        outdated: str | None = None
        if state is not None and not afresh and self._is_fresh_enough(state, generation):
            return state, generation
        try:
            signature = self._read_metadata(lambda: sign(self.settings.metadata, self.settings.environ))
        except (GddlError, OSError) as error:
            return self._stale(state, generation, "", error)
        if state is not None and not afresh and self._may_stay(state, generation, signature):
            state = self._seen(state, generation, signature)
            if not self._placement_moved(state, generation):
                return state, generation
            outdated = state.placement_tag
        try:
            folder = self._read_metadata(self._files)
        except (GddlError, OSError) as error:
            return self._stale(state, generation, "", error)
        with self.cache.building(wait=generation is None or afresh) as mine:
            if not mine and state is not None:
                return state, generation
            with collector_paused():
                return self._renew(signature, folder, outdated, afresh=afresh)

    def _files(self) -> Folder:
        from airflow_gddl.metadata.folder import open_folder, read_ahead  # noqa: PLC0415 - of a compilation alone

        return read_ahead(open_folder(self.settings.metadata, self.settings.environ))

    def _read_metadata(self, read: Callable[[], Answer]) -> Answer:
        return self.reads.call(read, self.settings.metadata, self.settings.environ)

    def _is_fresh_enough(self, state: State, generation: Path | None) -> bool:
        """Whether a remote folder is due for a check; a clock that was set back makes it due."""
        age = self.settings.clock() - state.checked_at
        return generation is not None and is_remote(self.settings.metadata) and 0 <= age < self.settings.refresh_seconds

    def _may_stay(self, state: State, generation: Path | None, signature: Signature) -> bool:
        if signature.text in (state.signature, state.tried):
            return True
        age = self.settings.clock() - signature.newest
        return generation is not None and 0 <= age < self.settings.settle_seconds

    def _placement_moved(self, state: State, generation: Path | None) -> bool:
        """Whether the placement in the lake differs from that of the compiled metadata.

        A remote lake is checked as often as remote metadata; the compiled metadata stays while it does not respond.
        """
        if generation is None or not state.placement:
            return False
        is_there, now = is_remote(state.placement), self.settings.clock()
        if is_there and 0 <= now - state.placement_at < self.settings.refresh_seconds:
            return False
        if is_there:
            self.cache.write_state(replace(state, placement_at=now), generation)
        environ, why, moved = self.settings.reaching(state.placement, state.aws_conn_id), "", False
        try:
            tag = self.reads.call(lambda: tag_of(state.placement, environ), state.placement, environ)
            moved = tag != state.placement_tag
        except (GddlError, OSError) as error:
            _LOG.warning("the placement of tables can't be read from %s: %s", state.placement, error)
            why = str(error)
        if why != state.placement_why:
            self.cache.write_state(replace(state, placement_at=now, placement_why=why), generation)
        return moved

    def _seen(self, state: State, generation: Path | None, signature: Signature) -> State:
        """Record a check of the metadata; clears the stale state if the compiled metadata matches."""
        seen = state
        if signature.text == state.signature and state.stale_since is not None:
            seen = replace(seen, stale_since=None, why="", tried="")
        if is_remote(self.settings.metadata):
            seen = replace(seen, checked_at=self.settings.clock())
        if seen != state:
            self.cache.write_state(seen, generation)
        return seen

    def _renew(
        self, signature: Signature, folder: Folder, outdated: str | None, *, afresh: bool
    ) -> tuple[State, Path | None]:
        """
        Args:
            folder: the metadata, read.
            outdated: tag of the placement that no longer holds; None: it still does.
        """
        from airflow_gddl.runtime.compiled import documents  # noqa: PLC0415 - of a compilation alone

        state, generation = self.cache.read_state()
        unchanged = state is not None and state.signature == signature.text and state.placement_tag != outdated
        if state is not None and unchanged and not afresh:
            return state, generation  # another process was faster
        try:
            compiled, placement_why = self._compile(folder, generation)
        except MetadataError as error:
            return self._stale(state, generation, signature.text, error)
        except (GddlError, OSError) as error:
            return self._stale(state, generation, "", error)
        made = documents.add(self.cache, compiled)
        state = State(
            signature=signature.text,
            built_at=self.settings.now(),
            checked_at=self.settings.clock(),
            carried=compiled.carried,
            newest=signature.newest,
            placement=compiled.placed.path,
            placement_tag=plain_tag(compiled.placed.tag),
            placement_at=self.settings.clock(),
            placement_why=placement_why,
            aws_conn_id=compiled.placed.aws_conn_id,
        )
        self.cache.write_state(state, made)
        self.cache.clean(made)
        return state, made

    def _stale(
        self, state: State | None, generation: Path | None, tried: str, error: Exception
    ) -> tuple[State, Path | None]:
        """Mark what is compiled as stale, and why. `tried`: signature of metadata that is invalid and not retried."""
        before = state or State(signature="", built_at="")
        since = before.stale_since or self.settings.now()
        stale = replace(before, stale_since=since, why=str(error), tried=tried, checked_at=self.settings.clock())
        if replace(stale, checked_at=before.checked_at) != before or is_remote(self.settings.metadata):
            self.cache.folder.mkdir(parents=True, exist_ok=True)
            self.cache.write_state(stale, generation)
        return stale, generation

    def _compile(self, folder: Folder, before: Path | None) -> tuple[Compiled, str]:
        """The compiled metadata, and why the placement can't be read; empty where it can.

        Args:
            before: the current generation, if any.
        """
        # pydantic and the checks of every row are needed only when the metadata has changed.
        from airflow_gddl.metadata.loading import load_folder  # noqa: PLC0415 - as said above
        from airflow_gddl.runtime.compiled import documents, placements  # noqa: PLC0415 - as said above
        from airflow_gddl.runtime.compiled.building import compile_metadata  # noqa: PLC0415 - as said above

        loaded = load_folder(folder, self.settings.environ)
        path = placements.place_of(loaded.roots.lake, loaded.dag_prefix)
        environ = self.settings.reaching(path, loaded.aws_conn_id)
        why = ""
        try:
            read = partial(placements.read, path, environ)
            placement, tag = self.reads.call(read, path, environ, most=_WHILE_LOCKED)
        except (GddlError, OSError) as error:
            placement, tag = _known_placement(path, before, error)
            why = str(error)
        specs, at = documents.read_specs(before) if before else (), self.settings.clock()
        return compile_metadata(loaded, specs, placement, at, tag, path), why


def _known_placement(path: str, before: Path | None, error: Exception) -> tuple[Placement, str | None]:
    """The current placement, else an empty one, while the lake does not respond.

    Args:
        error: of reading it.

    Raises:
        RetriableError: `PLACEMENT_DAMAGED`, and there is none that is current.
    """
    from airflow_gddl.runtime.compiled import documents  # noqa: PLC0415 - of a compilation alone
    from airflow_gddl.topology.placement import Placement  # noqa: PLC0415 - as above

    try:
        known = documents.read_placement(before) if before else None
    except (GddlError, OSError, ValueError):
        known = None
    if known is not None and known.path == path:
        _LOG.warning("the placement of tables can't be read from %s: %s", path, error)
        return known.placement, known.tag
    if isinstance(error, GddlError) and error.code == PLACEMENT_DAMAGED:
        raise error
    # Without a tag, nothing in the lake is overwritten.
    what = "the placement of tables can't be read from %s; DAG ids may differ until it can: %s"
    _LOG.warning(what, path, error)
    return Placement(), None
