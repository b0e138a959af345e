"""Files of compiled metadata: generations in a local folder. An atomically replaced file names the current one.

Every worker imports this module: it reads what a DAG needs without the contract's classes, whose import takes longer
than all else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from binascii import crc32
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.topology.pipelines import Pipeline


@dataclass(frozen=True, kw_only=True)
class CompiledSettings:
    """Location of the metadata, and how it is watched.

    Attributes:
        metadata: an absolute local path or an `s3://` URL.
        cache: a local folder, shared by any number of metadata folders and processes.
        environ: names that start with `GDDL_` override settings; `AWS_…` configure S3.
        clock: seconds since the epoch.
        refresh_seconds: minimum interval between listings of a remote folder.
        time_limit: seconds that all reads of a call may take together.
        settle_seconds: a younger file may be incomplete; with good compiled metadata, rebuilding waits.
        lake_environ: returns the environment for the metadata's lake, by its path and the Airflow connection that the
            metadata names; None: `environ`.
    """

    metadata: str
    cache: Path
    environ: Mapping[str, str]
    clock: Callable[[], float]
    refresh_seconds: float = 30.0
    time_limit: float = 60.0
    settle_seconds: float = 1.0
    lake_environ: Callable[[str, str], Mapping[str, str]] | None = None

    def reaching(self, path: str, aws_conn_id: str | None) -> Mapping[str, str]:
        """Environment for a path in the lake."""
        return self.environ if self.lake_environ is None else self.lake_environ(path, aws_conn_id or "")

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="seconds")


FORMAT = 7


@dataclass(frozen=True, kw_only=True)
class State:
    """Origin of the compiled metadata.

    Attributes:
        signature: of the metadata that it was compiled from.
        built_at: ISO 8601 UTC.
        checked_at: seconds since the epoch of the last check of a remote folder; 0 for local ones.
        stale_since: ISO 8601 UTC since when newer metadata can't be read; null when it is current.
        why: reason that it can't be read; empty otherwise.
        tried: signature of the metadata that could not be read.
        carried: tables kept from the one before, because a file that may hold them can't be read.
        newest: modification time of its newest file, seconds since the epoch.
        placement: path of the placement that was used; empty: none.
        placement_tag: of that object; empty: there was none.
        placement_at: seconds since the epoch of its last check, where it is remote.
        placement_why: why it can't be read, so that the last known one is used; empty: it can.
        aws_conn_id: Airflow connection that reaches it; None: the configured one, if any.
    """

    signature: str
    built_at: str
    checked_at: float = 0.0
    newest: float = 0.0
    stale_since: str | None = None
    why: str = ""
    tried: str = ""
    carried: tuple[str, ...] = ()
    placement: str = ""
    placement_tag: str = ""
    placement_at: float = 0.0
    placement_why: str = ""
    aws_conn_id: str | None = None


def index_entry(pipeline: Pipeline) -> Pipeline:
    """Index entry for the DAG factory: without the tables of a pack, unless its DAG has a group for each."""
    return pipeline if pipeline.view in ("table", "group") else replace(pipeline, tables=())


def pipeline_of(entry: Mapping[str, Any]) -> Pipeline:
    """
    Raises:
        ValueError: it is damaged.
    """
    return msgspec.convert(entry, Pipeline)


_STATE, _LOCK, INDEX, PROBLEMS, _UNBUILT = "state.json", "lock", "index.json", "problems.json", "unbuilt"
TABLES, PLACEMENT, _PARSED, _UPKEEP = "tables.json", "placement.json", "parsed", "upkeep.json"
_KEPT = 3


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
        if generation is not None and not (generation / INDEX).is_file():
            return None, None
        return state, generation

    def write_state(self, state: State, generation: Path | None) -> None:
        data = {**plain(state), "generation": generation.name if generation else "", "metadata": self.metadata}
        _replace(self.folder / _STATE, data)

    def new(self) -> Path:
        """An empty generation; it is not read before the state names it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        generation = Path(tempfile.mkdtemp(prefix="gen-", dir=self.folder))
        (generation / "pipelines").mkdir()
        return generation

    def clean(self, serving: Path) -> None:
        """Remove old generations; the last few stay for current readers."""
        generations = sorted(self.folder.glob("gen-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in generations[_KEPT:]:
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
    folders = set()
    for path in folder.glob(f"*/{_STATE}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads(path.read_bytes())
            if state["stale_since"] is None:
                folders.add(str(state["metadata"]))
    return sorted(folders)


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
    """Read the list of pipelines of a generation.

    Raises:
        OSError, ValueError, KeyError, TypeError: it is missing or damaged.
    """
    entries: list[dict[str, Any]] = json.loads((generation / INDEX).read_bytes())["pipelines"]
    return entries


def read_settings(generation: Path) -> tuple[str, bool]:
    """The prefix of DAG ids, and whether a source asks for proposals of new tables.

    Raises:
        OSError, ValueError, KeyError, TypeError: as `read_index`.
    """
    index = json.loads((generation / INDEX).read_bytes())
    return str(index["prefix"]), bool(index["proposes"])


def read_entry(generation: Path, dag_id: str) -> Pipeline | None:
    """A pipeline as the index has it; None when no pipeline has this DAG id.

    Raises:
        ValueError, KeyError, TypeError: it is damaged.
    """
    data = document(generation, dag_id)
    return None if data is None else index_entry(pipeline_of(data["pipeline"]))


def read_problems(generation: Path) -> tuple[str, ...]:
    return tuple(json.loads((generation / PROBLEMS).read_bytes())["problems"])


def read_unbuilt(generation: Path) -> tuple[str, ...]:
    """Pipelines noted by `write_unbuilt`, of all DAG files; empty when there are none."""
    lines = {line for path in generation.glob(f"{_UNBUILT}-*.json") for line in _unbuilt_of(path)}
    return tuple(sorted(lines))


def _unbuilt_of(path: Path) -> tuple[str, ...]:
    try:
        return tuple(json.loads(path.read_bytes())["unbuilt"])
    except FileNotFoundError:
        return ()


def write_unbuilt(generation: Path, chosen: str, lines: tuple[str, ...]) -> None:
    """Store pipelines whose DAG a DAG file can't build; nothing is written when that is already stored.

    Each DAG file has a document of its own, since several are parsed at a time.

    Args:
        chosen: text of the file's selection.
    """
    mine = generation / f"{_UNBUILT}-{crc32(chosen.encode()):08x}.json"
    if lines != _unbuilt_of(mine):
        _replace(mine, {"unbuilt": lines})


def document(generation: Path, dag_id: str) -> Any:
    """Its JSON; None when there is no such pipeline, as opposed to a lost file."""
    try:
        return json.loads(file_of(generation, dag_id).read_bytes())[dag_id]
    except (FileNotFoundError, KeyError):
        if any(entry["dag_id"] == dag_id for entry in read_index(generation)):
            raise
        return None


_FILES = 64
"""Of documents: a worker reads one of them, and a parse does not write thousands."""


def file_of(generation: Path, dag_id: str) -> Path:
    """The file with a pipeline's document, among those of others."""
    return generation / "pipelines" / f"{crc32(dag_id.encode(errors='backslashreplace')) % _FILES:02}.json"


def write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _replace(path: Path, data: Mapping[str, Any]) -> None:
    handle, name = tempfile.mkstemp(prefix=".state-", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(data, file)
    Path(name).replace(path)
