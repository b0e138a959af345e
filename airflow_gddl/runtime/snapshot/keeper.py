"""Made anew when the metadata changed; the last good one when it can't be read."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from airflow_gddl.contract.errors import GddlError, MetadataError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.runtime.snapshot import cache
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
    """Decides between the generation at hand and a new one."""

    settings: SnapshotSettings

    @property
    def cache(self) -> Cache:
        place = hashlib.sha256(self.settings.metadata.encode()).hexdigest()[:16]
        return Cache(self.settings.cache / place, self.settings.metadata)

    def serve(self, *, afresh: bool = False) -> tuple[State, Path | None]:
        state, generation = self.cache.read_state()
        if state is not None and not afresh and self._is_fresh_enough(state, generation):
            return state, generation
        try:
            signature = self._bounded(lambda: sign(self.settings.metadata, self.settings.environ))
        except (GddlError, OSError) as error:
            return self._unreadable(state, generation, error)
        if state is not None and not afresh and self._may_stay(state, generation, signature):
            return self._seen(state, generation, signature)
        with self.cache.building(wait=generation is None or afresh) as mine:
            if not mine and state is not None:
                return state, generation
            return self._renew(signature, afresh=afresh)

    def _is_fresh_enough(self, state: State, generation: Path | None) -> bool:
        """A remote folder is not asked at every parse; a clock that was set back asks at once."""
        age = self.settings.clock() - state.checked_at
        return generation is not None and is_remote(self.settings.metadata) and 0 <= age < self.settings.refresh_seconds

    def _may_stay(self, state: State, generation: Path | None, signature: Signature) -> bool:
        if signature.text in (state.signature, state.tried):
            return True
        age = self.settings.clock() - signature.newest
        return generation is not None and 0 <= age < self.settings.settle_seconds

    def _seen(self, state: State, generation: Path | None, signature: Signature) -> tuple[State, Path | None]:
        """The metadata was looked at; that it could not be read for a while is over when it is what serves."""
        seen = state
        if signature.text == state.signature and state.stale_since is not None:
            seen = replace(seen, stale_since=None, why="", tried="")
        if is_remote(self.settings.metadata):
            seen = replace(seen, checked_at=self.settings.clock())
        if seen != state:
            self.cache.write_state(seen, generation)
        return seen, generation

    def _renew(self, signature: Signature, *, afresh: bool) -> tuple[State, Path | None]:
        state, generation = self.cache.read_state()
        if state is not None and state.signature == signature.text and not afresh:
            return state, generation  # another process was faster
        try:
            compiled = self._bounded(
                lambda: _compile(self.settings, cache.read_specs(generation) if generation else ())
            )
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
        )
        self.cache.write_state(state, made)
        self.cache.clean(made)
        self._keep_copy(state, made)
        return state, made

    def _keep_copy(self, state: State, generation: Path) -> None:
        """In the lake; whatever is wrong with that, this machine has its own."""
        if self._copies is None:
            return
        copies = self._copies
        try:
            self._bounded(lambda: copies.keep(state.signature, state.built_at, generation))
        except (GddlError, OSError) as error:
            _LOG.warning("the metadata's copy could not be written to %s: %s", self.settings.copy, error)

    @property
    def _copies(self) -> Copies | None:
        settings = self.settings
        return Copies(settings.copy, settings.metadata, settings.copy_environ) if settings.copy else None

    def _unreadable(self, state: State | None, generation: Path | None, error: Exception) -> tuple[State, Path | None]:
        """What serves while the metadata does not answer: what this machine has; where it has nothing, the copy."""
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
        """Remember since when and why. `tried`: metadata that is wrong as it stands, not worth another try."""
        before = state or State(signature="", built_at="")
        since = before.stale_since or self.settings.now()
        stale = replace(before, stale_since=since, why=str(error), tried=tried, checked_at=self.settings.clock())
        if replace(stale, checked_at=before.checked_at) != before or is_remote(self.settings.metadata):
            self.cache.folder.mkdir(parents=True, exist_ok=True)
            self.cache.write_state(stale, generation)
        return stale, generation

    def _bounded(self, call: Callable[[], T]) -> T:
        return bounded(call, self.settings.time_limit, self.settings.metadata)


def _compile(settings: SnapshotSettings, before: Iterable[TableSpec]) -> Compiled:
    # pydantic and the checks of every row are needed only when the metadata has changed.
    from airflow_gddl.metadata.loading import load  # noqa: PLC0415 - as said above
    from airflow_gddl.runtime.snapshot.building import compile_catalog  # noqa: PLC0415 - as said above

    return compile_catalog(load(settings.metadata, settings.environ), before)
