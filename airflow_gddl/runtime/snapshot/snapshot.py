"""The snapshot that serves now, and what can be asked of it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.metadata.topology import Pipeline
from airflow_gddl.runtime.snapshot import cache
from airflow_gddl.runtime.snapshot.documents import Directory, PipelineDocument, State, pipeline_of
from airflow_gddl.runtime.snapshot.keeper import Keeper
from airflow_gddl.runtime.snapshot.settings import SnapshotSettings

T = TypeVar("T")


@dataclass(frozen=True)
class MetadataSnapshot:
    """What serves. `generation` null: nothing does, because the metadata could never be read; `state` says why.

    Attributes:
        cache_trouble: why the configured cache folder does not serve, and another one does; empty when it does.
    """

    settings: SnapshotSettings
    state: State
    generation: Path | None
    cache_trouble: str = ""

    @classmethod
    def current(cls, settings: SnapshotSettings) -> Self:
        """The snapshot of the metadata as it is, compiled now if need be.

        Raises:
            FatalError: `CACHE_UNUSABLE`.
        """
        try:
            state, generation = Keeper(settings).serve()
            return cls(settings, state, generation)
        except OSError as error:  # denied, read-only, full, no folder
            trouble = _unusable(settings.cache, error)
        try:
            other = replace(settings, cache=own_temporary_folder())
            state, generation = Keeper(other).serve()
        except OSError as error:
            raise _unusable(settings.cache, error) from error
        return cls(other, state, generation, str(trouble))

    def renewed(self) -> Self:
        """The metadata as it is at this moment: listed though that was done just now, and no file waits to settle.

        Raises:
            FatalError: `CACHE_UNUSABLE`.
        """
        return self.current(replace(self.settings, refresh_seconds=0.0, settle_seconds=0.0))

    def pipelines(self) -> tuple[Pipeline, ...]:
        """All, sorted by DAG id; those that are packs without their tables."""
        nothing: list[dict[str, Any]] = []
        return tuple(pipeline_of(entry) for entry in self._read(cache.read_index, nothing))

    def pipeline(self, dag_id: str) -> PipelineDocument | None:
        """One pipeline and its tables; None when there is no such one, not even in metadata read once more."""
        found = self._document(self, dag_id)
        return found if found is not None else self._document(self.renewed(), dag_id)

    def entry(self, dag_id: str) -> Pipeline | None:
        """`pipelines` for one DAG id, at a cost that does not grow with the number of tables in the metadata.

        None as in `pipeline`.
        """
        found = self._entry(self, dag_id)
        return found if found is not None else self._entry(self.renewed(), dag_id)

    def directory(self) -> Directory | None:
        """Every table in a short row; None when nothing serves."""
        return self._read(cache.read_directory, None)

    def problems(self) -> tuple[str, ...]:
        """A line for each wrong row, ready to be shown."""
        return self._read(cache.read_problems, ())

    def unbuilt(self) -> tuple[str, ...]:
        """A line for each pipeline that could not be made a DAG."""
        return self._read(cache.read_unbuilt, ())

    def note_unbuilt(self, lines: tuple[str, ...]) -> None:
        """Remember them for those who show them."""
        if self.generation is not None:
            cache.write_unbuilt(self.generation, lines)

    @staticmethod
    def _document(of: MetadataSnapshot, dag_id: str) -> PipelineDocument | None:
        found = of._read(lambda generation: cache.read_document(generation, dag_id), None)
        return None if found is None else replace(found, metadata_at=of.state.newest)

    @staticmethod
    def _entry(of: MetadataSnapshot, dag_id: str) -> Pipeline | None:
        return of._read(lambda generation: cache.read_entry(generation, dag_id), None)

    def _read(self, read: Callable[[Path], T], nothing: T) -> T:
        """Rebuilt once when a file turns out to be gone or damaged."""
        if self.generation is None:
            return nothing
        try:
            return read(self.generation)
        except (OSError, ValueError, KeyError, TypeError, GddlError):
            _, again = Keeper(self.settings).serve(afresh=True)
            return nothing if again is None else read(again)


def own_temporary_folder() -> Path:
    """A folder for compiled metadata that this user alone may write, where the configured one can't be.

    Raises:
        OSError: there is none either, or another user made it.
    """
    folder = Path(tempfile.gettempdir(), f"airflow-gddl-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} belongs to somebody else, or others may write it")
    return folder


def _unusable(cache: Path, error: OSError) -> FatalError:
    remedy = "set [gddl] cache_dir to a local folder that Airflow may write"
    return FatalError("CACHE_UNUSABLE", str(error), where=str(cache), remedy=remedy)
