"""Documents of compiled metadata, and their files: generations in a local folder.

An atomically replaced file names the current generation.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from airflow_gddl.contract.codec import compact, decode, plain
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.source_access import SourceAccess
from airflow_gddl.contract.spec import Roots, TableSpec, TierSpec
from airflow_gddl.topology import Pipeline, Placement, Timing
from airflow_gddl.topology.rows import TableRow


@dataclass(frozen=True, kw_only=True)
class SnapshotSettings:
    """Location of the metadata, and how it is watched.

    Attributes:
        metadata: an absolute local path or an `s3://` URL.
        cache: a local folder, shared by any number of metadata folders and processes.
        environ: names that start with `GDDL_` override settings; `AWS_…` configure S3.
        clock: seconds since the epoch.
        refresh_seconds: minimum interval between listings of a remote folder.
        time_limit: seconds that all reads of a call may take together.
        settle_seconds: a younger file may be incomplete; with a good snapshot, rebuilding waits.
        copy: lake that also stores the last good copy; empty: only the cache does.
        copy_environ: environment for that lake.
        lake_environ: returns the environment for the metadata's lake, by its path and the Airflow connection that the
            metadata names; null: `environ`.
    """

    metadata: str
    cache: Path
    environ: Mapping[str, str]
    clock: Callable[[], float]
    refresh_seconds: float = 30.0
    time_limit: float = 60.0
    settle_seconds: float = 1.0
    copy: str = ""
    copy_environ: Mapping[str, str] = field(default_factory=dict)
    lake_environ: Callable[[str, str], Mapping[str, str]] | None = None

    def reaching(self, path: str, aws_conn_id: str | None) -> Mapping[str, str]:
        """Environment for a path in the lake."""
        return self.environ if self.lake_environ is None else self.lake_environ(path, aws_conn_id or "")

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="seconds")


FORMAT = 4


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """A table that others depend on: the pipeline that loads it, and its row."""

    dag_id: str
    spec: TableSpec


@dataclass(frozen=True, kw_only=True)
class PipelineDocument:
    """All that a worker needs for one pipeline.

    Attributes:
        tiers, catalogs: those that its tables use.
        runner_settings: settings under `runners` in `gddl.yaml` for this runner.
        dependencies: tables of other pipelines that its tables depend on, sorted.
        unmet: tables that they depend on and that nothing loads, since the row is disabled or invalid, sorted.
        aws_conn_id: Airflow connection that reaches S3 for the roots; null: the configured one, if any.
        access: landing roots of its tables that are read with credentials of their own.
        heartbeats: other pipelines that load heartbeat tables of its rows, sorted.
        metadata_at: when the newest file of the metadata was last modified, seconds since the epoch.
    """

    pipeline: Pipeline
    roots: Roots
    runner: str
    specs: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec]
    runner_settings: Mapping[str, Any] = field(default_factory=dict)
    dependencies: tuple[Dependency, ...] = ()
    unmet: tuple[str, ...] = ()
    aws_conn_id: str | None = None
    metadata_at: float = 0.0
    access: tuple[SourceAccess, ...] = ()
    catalogs: Mapping[str, CatalogSpec] = field(default_factory=dict)
    heartbeats: tuple[str, ...] = ()

    def spec_of(self, table: str) -> TableSpec | None:
        """The row of a table; null: the pipeline does not load it."""
        return next((spec for spec in self.specs if spec.table == table), None)


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A short row for every table of the metadata, including disabled and invalid ones, sorted by name.

    Attributes:
        problems: problems of the metadata outside the rows, one line each, truncated.
    """

    roots: Roots
    rows: tuple[TableRow, ...]
    aws_conn_id: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlacementDocument:
    """Assignment of tables to DAGs, and the version of the placement in the lake that it is based on.

    Attributes:
        path: of the object in the lake.
        tag: of that object when read; null: there was none.
        is_kept: whether the stored placement is equal.
        roots: the lake is among them.
        aws_conn_id: as in `PipelineDocument`.
    """

    path: str
    placement: Placement
    tag: str | None
    is_kept: bool
    roots: Roots
    aws_conn_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A catalog as documents. `problems`: a line each; `carried`: tables taken over from the snapshot before."""

    documents: tuple[PipelineDocument, ...]
    directory: Directory
    problems: tuple[str, ...]
    carried: tuple[str, ...]
    placed: PlacementDocument


@dataclass(frozen=True, kw_only=True)
class State:
    """Origin of the current snapshot.

    Attributes:
        signature: of the metadata that it was compiled from.
        built_at: ISO 8601 UTC.
        checked_at: seconds since the epoch of the last check of a remote folder; 0 for local ones.
        stale_since: ISO 8601 UTC since when newer metadata can't be read; null when the snapshot is current.
        why: reason that it can't be read; empty otherwise.
        tried: signature of the metadata that could not be read.
        carried: tables kept from the snapshot before, because a file that may hold them can't be read.
        newest: modification time of its newest file, seconds since the epoch.
        placement: path of the placement that was used; empty: none.
        placement_tag: of that object; empty: there was none.
        placement_at: seconds since the epoch of its last check, where it is remote.
        placement_why: why it can't be read, so that the last known one is used; empty: it can.
        aws_conn_id: Airflow connection that reaches it; null: the configured one, if any.
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
    """Index entry for the DAG factory: without the tables of a pack."""
    return replace(pipeline, tables=()) if pipeline.kind == "pack" else pipeline


def pipeline_of(entry: Mapping[str, Any]) -> Pipeline:
    """Parse an index entry; not validated, since this package wrote it and a damaged file is rebuilt."""
    timing = entry["timing"]
    return Pipeline(
        **{
            **entry,
            "timing": Timing(**{**timing, "assets": tuple(timing.get("assets", ()))}),
            "tags": tuple(entry["tags"]),
            "tables": tuple(entry["tables"]),
        }
    )


_STATE, _LOCK, _INDEX, _PROBLEMS, _UNBUILT = "state.json", "lock", "index.json", "problems.json", "unbuilt.json"
_TABLES, _PLACEMENT, _PARSED, _UPKEEP = "tables.json", "placement.json", "parsed", "upkeep.json"
_KEPT = 3
_ROW = tuple(field.name for field in fields(TableRow))
_VALUES = attrgetter(*_ROW)


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
            _write(_place(generation, document.pipeline.dag_id), compact(document))
        _write(generation / _PROBLEMS, {"problems": compiled.problems})
        rows = [_VALUES(row) for row in compiled.directory.rows]
        _write(generation / _TABLES, {**plain(replace(compiled.directory, rows=())), "rows": rows})
        _write(generation / _PLACEMENT, compact(compiled.placed))
        entries = [compact(index_entry(document.pipeline)) for document in compiled.documents]
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
