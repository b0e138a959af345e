"""Rebuilds the snapshot when the metadata changed; keeps the last good one when it can't be read."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from airflow_gddl.contract.errors import GddlError, MetadataError
from airflow_gddl.metadata.topology import Placed, Placement
from airflow_gddl.runtime.snapshot import cache, placements
from airflow_gddl.runtime.snapshot.bounded import bounded
from airflow_gddl.runtime.snapshot.cache import Cache
from airflow_gddl.runtime.snapshot.copies import Copies
from airflow_gddl.runtime.snapshot.documents import Compiled, State
from airflow_gddl.runtime.snapshot.settings import SnapshotSettings
from airflow_gddl.runtime.snapshot.signature import Signature, is_remote, sign

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keeper:
    """Decides between the current generation and a new one."""

    settings: SnapshotSettings

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
            signature = self._bounded(lambda: sign(self.settings.metadata, self.settings.environ))
        except (GddlError, OSError) as error:
            return self._unreadable(state, generation, error)
        if state is not None and not afresh and self._may_stay(state, generation, signature):
            state = self._seen(state, generation, signature)
            if not self._placement_moved(state, generation):
                return state, generation
            outdated = state.placement_tag
        with self.cache.building(wait=generation is None or afresh) as mine:
            if not mine and state is not None:
                return state, generation
            return self._renew(signature, outdated, afresh=afresh)

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
        """Whether the placement in the lake differs from the one of the current snapshot.

        A remote lake is checked as often as remote metadata; the current snapshot stays while it does not respond.
        """
        if generation is None or not state.placement:
            return False
        is_there, now = is_remote(state.placement), self.settings.clock()
        if is_there and 0 <= now - state.placement_at < self.settings.refresh_seconds:
            return False
        if is_there:
            self.cache.write_state(replace(state, placement_at=now), generation)
        environ = self.settings.reaching(state.placement, state.aws_conn_id)
        try:
            return self._bounded(lambda: placements.tag_of(state.placement, environ)) != state.placement_tag
        except (GddlError, OSError) as error:
            _LOG.warning("the placement of tables can't be read from %s: %s", state.placement, error)
            return False

    def _seen(self, state: State, generation: Path | None, signature: Signature) -> State:
        """Record a check of the metadata; clears the stale state if the current snapshot matches."""
        seen = state
        if signature.text == state.signature and state.stale_since is not None:
            seen = replace(seen, stale_since=None, why="", tried="")
        if is_remote(self.settings.metadata):
            seen = replace(seen, checked_at=self.settings.clock())
        if seen != state:
            self.cache.write_state(seen, generation)
        return seen

    def _renew(self, signature: Signature, outdated: str | None, *, afresh: bool) -> tuple[State, Path | None]:
        """
        Args:
            outdated: tag of the placement that no longer holds; null: it still does.
        """
        state, generation = self.cache.read_state()
        unchanged = state is not None and state.signature == signature.text and state.placement_tag != outdated
        if state is not None and unchanged and not afresh:
            return state, generation  # another process was faster
        try:
            compiled = self._bounded(lambda: _compile(self.settings, generation))
        except MetadataError as error:
            return self._stale(state, generation, signature.text, error)
        except (GddlError, OSError) as error:
            return self._unreadable(state, generation, error)
        made = self.cache.add(compiled)
        state = State(
            signature=signature.text,
            built_at=self.settings.now(),
            checked_at=self.settings.clock(),
            carried=compiled.carried,
            newest=signature.newest,
            placement=compiled.placed.path,
            placement_tag=placements.plain_tag(compiled.placed.tag),
            placement_at=self.settings.clock(),
            aws_conn_id=compiled.placed.aws_conn_id,
        )
        self.cache.write_state(state, made)
        self.cache.clean(made)
        self._keep_copy(state, made)
        return state, made

    def _keep_copy(self, state: State, generation: Path) -> None:
        """Copy to the lake; errors are logged, since this machine has its own copy."""
        copies = self._copies
        if copies is None:
            return
        try:
            self._bounded(lambda: copies.keep(state.signature, state.built_at, generation))
        except (GddlError, OSError) as error:
            _LOG.warning("the metadata's copy could not be written to %s: %s", self.settings.copy, error)

    @property
    def _copies(self) -> Copies | None:
        settings = self.settings
        return Copies(settings.copy, settings.metadata, settings.copy_environ) if settings.copy else None

    def _unreadable(self, state: State | None, generation: Path | None, error: Exception) -> tuple[State, Path | None]:
        """Fallback while the metadata does not respond: this machine's snapshot, else the copy in the lake."""
        copies = None if generation is not None else self._copies
        if copies is not None:
            try:
                found = self._bounded(copies.newest)
            except (GddlError, OSError) as other:
                _LOG.warning("the metadata's copy could not be read from %s: %s", self.settings.copy, other)
                found = None
            if found is not None:
                generation = self.cache.restore(found.files)
                state = State(signature="", built_at=found.built_at)
        return self._stale(state, generation, "", error)

    def _stale(
        self, state: State | None, generation: Path | None, tried: str, error: Exception
    ) -> tuple[State, Path | None]:
        """Mark the snapshot as stale with a reason. `tried`: signature of metadata that is invalid and not retried."""
        before = state or State(signature="", built_at="")
        since = before.stale_since or self.settings.now()
        stale = replace(before, stale_since=since, why=str(error), tried=tried, checked_at=self.settings.clock())
        if replace(stale, checked_at=before.checked_at) != before or is_remote(self.settings.metadata):
            self.cache.folder.mkdir(parents=True, exist_ok=True)
            self.cache.write_state(stale, generation)
        return stale, generation

    def _bounded(self, call: Callable[[], T]) -> T:
        return bounded(call, self.settings.time_limit, self.settings.metadata)


def _compile(settings: SnapshotSettings, before: Path | None) -> Compiled:
    """
    Args:
        before: the current generation, if any.
    """
    # pydantic and the checks of every row are needed only when the metadata has changed.
    from airflow_gddl.metadata.loading import load  # noqa: PLC0415 - as said above
    from airflow_gddl.runtime.snapshot.building import compile_catalog  # noqa: PLC0415 - as said above

    catalog = load(settings.metadata, settings.environ)
    path = placements.place_of(catalog.roots.lake, catalog.dag_prefix)
    placement, tag = _placement(path, settings.reaching(path, catalog.aws_conn_id), before)
    placed = Placed(placement=placement, at=settings.clock())
    return compile_catalog(catalog, cache.read_specs(before) if before else (), placed, tag, path)


def _placement(path: str, environ: Mapping[str, str], before: Path | None) -> tuple[Placement, str | None]:
    """The placement in the lake; while the lake does not respond, the current one, else an empty one.

    Raises:
        RetriableError: `PLACEMENT_DAMAGED`, and there is no current snapshot.
    """
    try:
        return placements.read(path, environ)
    except (GddlError, OSError) as error:
        try:
            known = cache.read_placement(before) if before else None
        except (GddlError, OSError, ValueError):
            known = None
        if known is not None and known.path == path:
            _LOG.warning("the placement of tables can't be read from %s: %s", path, error)
            return known.placement, known.tag
        if isinstance(error, GddlError) and error.code == "PLACEMENT_DAMAGED":
            raise
        # Without a tag, nothing in the lake is overwritten.
        what = "the placement of tables can't be read from %s; DAG ids may differ until it can: %s"
        _LOG.warning(what, path, error)
        return Placement(), None
