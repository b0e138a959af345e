"""The snapshot that serves now, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    """What serves. `generation` null: nothing does, because the metadata could never be read; `state` says why."""

    settings: SnapshotSettings
    state: State
    generation: Path | None

    @classmethod
    def current(cls, settings: SnapshotSettings) -> Self:
        """The snapshot of the metadata as it is, compiled now if need be.

        Raises:
            FatalError: `CACHE_UNUSABLE`.
        """
        try:
            state, generation = Keeper(settings).serve()
        except OSError as error:  # denied, read-only, full, no folder
            remedy = "set [gddl] cache_dir to a local folder that Airflow may write"
            raise FatalError("CACHE_UNUSABLE", str(error), where=str(settings.cache), remedy=remedy) from error
        return cls(settings, state, generation)

    def pipelines(self) -> tuple[Pipeline, ...]:
        """All, sorted by DAG id; those that are packs without their tables."""
        nothing: list[dict[str, Any]] = []
        return tuple(pipeline_of(entry) for entry in self._read(cache.read_index, nothing))

    def pipeline(self, dag_id: str) -> PipelineDocument | None:
        """One pipeline and its tables; None when there is no such one."""
        return self._read(lambda generation: cache.read_document(generation, dag_id), None)

    def entry(self, dag_id: str) -> Pipeline | None:
        """`pipelines` for one DAG id, at a cost that does not grow with the number of tables in the metadata."""
        return self._read(lambda generation: cache.read_entry(generation, dag_id), None)

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

    def _read(self, read: Callable[[Path], T], nothing: T) -> T:
        """Rebuilt once when a file turns out to be gone or damaged."""
        if self.generation is None:
            return nothing
        try:
            return read(self.generation)
        except (OSError, ValueError, KeyError, TypeError, GddlError):
            _, again = Keeper(self.settings).serve(afresh=True)
            return nothing if again is None else read(again)
