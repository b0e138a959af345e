"""Generations of compiled metadata in a local folder; an atomically replaced file names the current one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.runtime.snapshot.documents import (
    Compiled,
    Directory,
    PipelineDocument,
    PlacementDocument,
    State,
    index_entry,
    pipeline_of,
)
from airflow_gddl.topology import Pipeline
from airflow_gddl.topology.rows import TableRow

_STATE, _LOCK, _INDEX, _PROBLEMS, _UNBUILT = "state.json", "lock", "index.json", "problems.json", "unbuilt.json"
_TABLES, _PLACEMENT, _PARSED, _UPKEEP = "tables.json", "placement.json", "parsed", "upkeep.json"
_KEPT = 3
_ROW = tuple(field.name for field in fields(TableRow))


@dataclass(frozen=True)
class Cache:
    """The cache of one metadata folder; `metadata` is its location, for `places`."""

    folder: Path
    metadata: str

    def read_state(self) -> tuple[State | None, Path | None]:
        """The state and the current generation; None if missing or damaged."""
        try:
            data = json.loads((self.folder / _STATE).read_bytes())
            name = data.pop("generation")
            data.pop("metadata", None)
            state = decode(State, data)
        except (OSError, ValueError, KeyError, AttributeError, TypeError, GddlError):
            return None, None
        generation = self.folder / name if name else None
        if generation is not None and not (generation / _INDEX).is_file():
            return None, None
        return state, generation

    def write_state(self, state: State, generation: Path | None) -> None:
        data = {**plain(state), "generation": generation.name if generation else "", "metadata": self.metadata}
        _replace(self.folder / _STATE, data)

    def add(self, compiled: Compiled) -> Path:
        """Write a complete generation; it is not read before the state names it."""
        generation = self._new()
        for document in compiled.documents:
            _write(_place(generation, document.pipeline.dag_id), plain(document))
        _write(generation / _PROBLEMS, {"problems": compiled.problems})
        rows = [list(plain(row).values()) for row in compiled.directory.rows]
        _write(generation / _TABLES, {**plain(replace(compiled.directory, rows=())), "rows": rows})
        _write(generation / _PLACEMENT, plain(compiled.placed))
        entries = [plain(index_entry(document.pipeline)) for document in compiled.documents]
        _write(generation / _INDEX, {"pipelines": entries})
        return generation

    def restore(self, files: Mapping[str, str]) -> Path:
        """Restore a generation from files by name."""
        generation = self._new()
        for name, text in files.items():
            (generation / name).write_text(text, encoding="utf-8")
        return generation

    def _new(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        generation = Path(tempfile.mkdtemp(prefix="gen-", dir=self.folder))
        (generation / "pipelines").mkdir()
        return generation

    def clean(self, serving: Path) -> None:
        """Remove old generations; the last few stay for current readers."""
        found = sorted(self.folder.glob("gen-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in found[_KEPT:]:
            if old != serving:
                shutil.rmtree(old, ignore_errors=True)

    @contextlib.contextmanager
    def building(self, *, wait: bool) -> Iterator[bool]:
        """Hold the right to build; False when another process builds and `wait` is false."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def places(folder: Path) -> list[str]:
    """Metadata folders that this machine has compiled, and that were readable the last time, sorted.

    Args:
        folder: holds a cache for each of them.
    """
    found = set()
    for path in folder.glob(f"*/{_STATE}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads(path.read_bytes())
            if state["stale_since"] is None:
                found.add(str(state["metadata"]))
    return sorted(found)


def note_parsed(generation: Path) -> None:
    """Remember that a DAG file was parsed that builds all DAGs of this metadata folder."""
    with contextlib.suppress(OSError):  # only `parsed_since` asks for it
        (generation.parent / _PARSED).touch()


def note_upkeep(generation: Path, dag_ids: Iterable[str]) -> None:
    """Remember the ids of the DAGs that a DAG file built for the metadata folder as a whole."""
    with contextlib.suppress(OSError):  # only `read_upkeep` asks for them
        (generation.parent / _UPKEEP).write_text(json.dumps(sorted(dag_ids)), encoding="utf-8")


def read_upkeep(generation: Path, since: float) -> list[str]:
    """Ids of `note_upkeep`, if noted since then, in seconds since the epoch.

    Raises:
        ValueError: they are damaged.
    """
    path = generation.parent / _UPKEEP
    noted = path.exists() and path.stat().st_mtime >= since
    return [str(dag_id) for dag_id in json.loads(path.read_bytes())] if noted else []


def parsed_since(folder: Path, since: float) -> Iterator[tuple[str, Path]]:
    """Metadata folders that DAG files have been parsed for, each with its current generation.

    Args:
        folder: see `places`.
        since: seconds since the epoch.
    """
    for path in sorted(folder.glob(f"*/{_PARSED}")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads((path.parent / _STATE).read_bytes())
            if path.stat().st_mtime >= since:
                yield str(state["metadata"]), path.parent / str(state["generation"])


def read_index(generation: Path) -> list[dict[str, Any]]:
    """
    Raises:
        OSError, ValueError, KeyError, TypeError: it is missing or damaged.
    """
    entries: list[dict[str, Any]] = json.loads((generation / _INDEX).read_bytes())["pipelines"]
    return entries


def read_document(generation: Path, dag_id: str) -> PipelineDocument | None:
    """None when no pipeline has this DAG id.

    Raises:
        GddlError, ValueError: it is damaged.
    """
    data = _document(generation, dag_id)
    return None if data is None else decode(PipelineDocument, data)


def read_entry(generation: Path, dag_id: str) -> Pipeline | None:
    """A pipeline as the index has it; None when no pipeline has this DAG id.

    Raises:
        ValueError, KeyError, TypeError: it is damaged.
    """
    data = _document(generation, dag_id)
    return None if data is None else index_entry(pipeline_of(data["pipeline"]))


def read_directory(generation: Path) -> Directory:
    """
    Raises:
        OSError, GddlError, ValueError, KeyError, TypeError: it is missing or damaged.
    """
    data = json.loads((generation / _TABLES).read_bytes())
    rows = tuple(_row(values) for values in data["rows"])  # not decoded, for speed
    return replace(decode(Directory, {**data, "rows": ()}), rows=rows)


def _row(values: list[Any]) -> TableRow:
    given: Iterable[Any] = (tuple(value) if isinstance(value, list) else value for value in values)
    return TableRow(**dict(zip(_ROW, given, strict=True)))


def read_roots(generation: Path) -> Roots:
    """
    Raises:
        OSError, GddlError, ValueError, KeyError: it is missing or damaged.
    """
    return decode(Roots, json.loads((generation / _TABLES).read_bytes())["roots"])


def read_placement(generation: Path) -> PlacementDocument:
    """
    Raises:
        OSError, GddlError, ValueError: it is missing or damaged.
    """
    return decode(PlacementDocument, json.loads((generation / _PLACEMENT).read_bytes()))


def read_problems(generation: Path) -> tuple[str, ...]:
    return tuple(json.loads((generation / _PROBLEMS).read_bytes())["problems"])


def read_unbuilt(generation: Path) -> tuple[str, ...]:
    """Pipelines noted by `write_unbuilt`; empty when there are none."""
    try:
        return tuple(json.loads((generation / _UNBUILT).read_bytes())["unbuilt"])
    except FileNotFoundError:
        return ()


def write_unbuilt(generation: Path, lines: tuple[str, ...]) -> None:
    """Store pipelines whose DAG can't be built; nothing is written when that is already stored."""
    if lines != read_unbuilt(generation):
        _replace(generation / _UNBUILT, {"unbuilt": lines})


def read_specs(generation: Path) -> Iterator[TableSpec]:
    """Every row of a generation, without damaged documents."""
    for path in sorted((generation / "pipelines").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, GddlError):
            yield from decode(PipelineDocument, json.loads(path.read_bytes())).specs


def _document(generation: Path, dag_id: str) -> Any:
    """Its JSON; None when there is no such pipeline, as opposed to a lost file."""
    try:
        return json.loads(_place(generation, dag_id).read_bytes())
    except FileNotFoundError:
        if any(entry["dag_id"] == dag_id for entry in read_index(generation)):
            raise
        return None


def _place(generation: Path, dag_id: str) -> Path:
    # Our DAG ids contain no path separators; other DAG ids have no document.
    return generation / "pipelines" / f"{dag_id.replace('/', '-')}.json"


def _write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _replace(path: Path, data: Mapping[str, Any]) -> None:
    handle, name = tempfile.mkstemp(prefix=".state-", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(data, file)
    Path(name).replace(path)
