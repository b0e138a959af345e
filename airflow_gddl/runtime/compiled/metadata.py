"""The compiled metadata that is current, and its queries."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow_gddl.contract.codes import CACHE_UNUSABLE, DAG_IDS_TAKEN
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError
from airflow_gddl.runtime.compiled import cache
from airflow_gddl.runtime.compiled.cache import CompiledSettings, State, pipeline_of
from airflow_gddl.runtime.compiled.keeper import Keeper
from airflow_gddl.topology.pipelines import Pipeline

if TYPE_CHECKING:
    from airflow_gddl.runtime.compiled.documents import Directory, PipelineDocument

T = TypeVar("T")
_PARSED_FOR = 600.0
"""Seconds after which a DAG file that is no longer parsed is forgotten."""


@dataclass(frozen=True)
class CompiledMetadata:
    """What is compiled now. `generation` None: the metadata could never be read; `state` gives the reason.

    Attributes:
        cache_trouble: why the configured cache folder is not used; empty when it is.
    """

    settings: CompiledSettings
    state: State
    generation: Path | None
    cache_trouble: str = ""

    @classmethod
    def current(cls, settings: CompiledSettings) -> Self:
        """The compiled metadata as it is, made now if need be.

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
        """The metadata at this moment: listed again, without waiting for files to settle.

        Raises:
            FatalError: `CACHE_UNUSABLE`.
        """
        return self.current(replace(self.settings, refresh_seconds=0.0, settle_seconds=0.0))

    def pipelines(self) -> tuple[Pipeline, ...]:
        """Pipelines that load tables, sorted by DAG id; packs without their tables, unless their view is `group`."""
        return tuple(pipeline for pipeline in self.served() if not pipeline.is_retired)

    def served(self) -> tuple[Pipeline, ...]:
        """`pipelines`, followed by the retired ones."""
        nothing: list[dict[str, Any]] = []
        return tuple(pipeline_of(entry) for entry in self._read(cache.read_index, nothing))

    def settings_of_dags(self) -> tuple[str, bool]:
        """The prefix of DAG ids, and whether a source asks for proposals of new tables."""
        return self._read(cache.read_settings, ("", False))

    def keep_placement(self) -> bool:
        """Write the placement of tables to the lake unless it is already stored; False: another process was faster.

        Raises:
            GddlError: the lake does not answer; see `Storage`.
        """
        from airflow_gddl.runtime.compiled import documents, placements  # noqa: PLC0415 - the contract's classes

        document = self._read(documents.read_placement, None)
        if document is None:
            return True
        environ = self.settings.reaching(document.path, document.aws_conn_id)
        return placements.keep(document, self.settings.clock(), environ)

    def pipeline(self, dag_id: str) -> PipelineDocument | None:
        """One pipeline with its tables; None when it does not exist, even in reloaded metadata."""
        return self._document(dag_id) or self.renewed()._document(dag_id)  # noqa: SLF001 - of this class

    def entry(self, dag_id: str) -> Pipeline | None:
        """`pipelines` for one DAG id, at a cost that does not grow with the number of tables in the metadata.

        None as in `pipeline`.
        """
        return self._entry(dag_id) or self.renewed()._entry(dag_id)  # noqa: SLF001 - of this class

    def directory(self) -> Directory | None:
        """A short row for every table; None without any."""
        from airflow_gddl.runtime.compiled import documents  # noqa: PLC0415 - the contract's classes

        return self._read(documents.read_directory, None)

    def problems(self) -> tuple[str, ...]:
        """One line for each invalid row, for display."""
        return self._read(cache.read_problems, ())

    def unbuilt(self) -> tuple[str, ...]:
        """One line for each pipeline whose DAG can't be built."""
        return self._read(cache.read_unbuilt, ())

    def note_unbuilt(self, chosen: str, lines: tuple[str, ...]) -> None:
        """Store them for display; called when a DAG file has built its DAGs."""
        if self.generation is not None:
            cache.write_unbuilt(self.generation, chosen, lines)
            cache.note_parsed(self.generation)

    def note_upkeep(self, dag_ids: Iterable[str]) -> None:
        """Store the ids of the DAGs for the metadata folder as a whole; called when a DAG file has built them."""
        if self.generation is not None:
            cache.note_upkeep(self.generation, dag_ids)

    def taken(self) -> tuple[str, ...]:
        """One line for each other metadata folder whose DAG files build DAGs with the same ids.

        Airflow shows one of the two, whichever was parsed last. Folders parsed for on this machine in the last
        `_PARSED_FOR` seconds count, of other roots: two of one landing root and lake are versions of a DAG bundle.
        """
        if self.generation is None:
            return ()
        from airflow_gddl.runtime.compiled import documents  # noqa: PLC0415 - the contract's classes

        since = self.settings.clock() - _PARSED_FOR
        lines, own_ids = [], {pipeline.dag_id for pipeline in self.served()}
        with contextlib.suppress(OSError, ValueError):
            own_ids |= {*cache.read_upkeep(self.generation, since)}
        for metadata, generation in cache.parsed_since(self.generation.parent.parent, since):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                theirs = {str(entry["dag_id"]) for entry in cache.read_index(generation)}
                ids = sorted(own_ids & (theirs | {*cache.read_upkeep(generation, since)}))
                if not ids or metadata == self.settings.metadata:
                    continue
                roots, own_roots = (documents.read_directory(one).roots for one in (generation, self.generation))
                if roots != own_roots:
                    what = f"{metadata} has {len(ids)} DAGs of the same ids, e.g. {ids[0]}; one hides the other"
                    remedy = "set dag_prefix in the gddl.yaml of all metadata folders but one"
                    lines.append(str(MetadataError(DAG_IDS_TAKEN, what, where=self.settings.metadata, remedy=remedy)))
        return tuple(lines)

    def _document(self, dag_id: str) -> PipelineDocument | None:
        from airflow_gddl.runtime.compiled import documents  # noqa: PLC0415 - the contract's classes

        document = self._read(lambda generation: documents.read_document(generation, dag_id), None)
        return None if document is None else replace(document, metadata_at=self.state.newest)

    def _entry(self, dag_id: str) -> Pipeline | None:
        return self._read(lambda generation: cache.read_entry(generation, dag_id), None)

    def _read(self, read: Callable[[Path], T], nothing: T) -> T:
        """Read again after one rebuild when a file is missing or damaged."""
        if self.generation is None:
            return nothing
        try:
            return read(self.generation)
        except (OSError, ValueError, KeyError, TypeError, GddlError):
            _, again = Keeper(self.settings).serve(afresh=True)
            return nothing if again is None else read(again)


def own_temporary_folder() -> Path:
    """A folder for compiled metadata that only this user may write, if the configured one is not writable.

    Raises:
        OSError: none can be created, or another user owns it.
    """
    folder = Path(tempfile.gettempdir(), f"airflow-gddl-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} is owned by another user, or writable by others")
    return folder


def _unusable(cache: Path, error: OSError) -> FatalError:
    remedy = "set [gddl] cache_dir to a local folder that Airflow may write"
    return FatalError(CACHE_UNUSABLE, str(error), where=str(cache), remedy=remedy)
