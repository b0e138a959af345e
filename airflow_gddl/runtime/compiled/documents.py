"""Documents of compiled metadata, with the contract's classes."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from airflow_gddl.contract.codec import compact, decode
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.source_access import SourceAccess
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.runtime.compiled.cache import (
    INDEX,
    PLACEMENT,
    PROBLEMS,
    TABLES,
    Cache,
    document,
    file_of,
    index_entry,
    write,
)
from airflow_gddl.runtime.table_directory import TableRow, in_order
from airflow_gddl.topology.pipelines import Pipeline
from airflow_gddl.topology.placement import Placement


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
        aws_conn_id: Airflow connection that reaches S3 for the roots; None: the configured one, if any.
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

    def job(self, run_id: str, specs: Sequence[TableSpec], options: JobOptions) -> JobSpec:
        """A job that loads some of its tables."""
        return JobSpec(
            run_id=run_id,
            roots=self.roots,
            tables=in_order(specs),
            tiers=self.tiers,
            options=options,
            catalogs=self.catalogs,
            access=self.access,
        )

    def spec_of(self, table: str) -> TableSpec | None:
        """The row of a table; None: the pipeline does not load it."""
        return next((spec for spec in self.specs if spec.table == table), None)


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A short row for every table of the metadata, including disabled and invalid ones, sorted by name.

    Attributes:
        problems: problems of the metadata outside the rows, one line each, truncated.
        proposals: path of the object with proposed tables; empty: no source asks for them.
    """

    roots: Roots
    rows: tuple[TableRow, ...]
    aws_conn_id: str | None = None
    problems: tuple[str, ...] = ()
    proposals: str = ""


@dataclass(frozen=True, kw_only=True)
class PlacementDocument:
    """Assignment of tables to DAGs, and the version of the placement in the lake that it is based on.

    Attributes:
        path: of the object in the lake.
        tag: of that object when read; None: there was none.
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
    """Metadata as documents.

    Attributes:
        problems: a line each.
        carried: tables taken over from those before.
    """

    documents: tuple[PipelineDocument, ...]
    directory: Directory
    problems: tuple[str, ...]
    carried: tuple[str, ...]
    placed: PlacementDocument
    prefix: str = ""


def add(cache: Cache, compiled: Compiled) -> Path:
    """Write a complete generation; it is not read before the state names it."""
    generation = cache.new()
    files: defaultdict[Path, dict[str, Any]] = defaultdict(dict)
    for one in compiled.documents:
        files[file_of(generation, one.pipeline.dag_id)][one.pipeline.dag_id] = compact(one)
    for path, documents in files.items():
        write(path, documents)
    write(generation / PROBLEMS, {"problems": compiled.problems})
    (generation / TABLES).write_bytes(msgspec.json.encode(compiled.directory))
    write(generation / PLACEMENT, compact(compiled.placed))
    entries = [compact(index_entry(one.pipeline)) for one in compiled.documents]
    proposes = bool(compiled.directory.proposals)
    write(generation / INDEX, {"pipelines": entries, "prefix": compiled.prefix, "proposes": proposes})
    return generation


def read_document(generation: Path, dag_id: str) -> PipelineDocument | None:
    """None when no pipeline has this DAG id.

    Raises:
        GddlError, ValueError: it is damaged.
    """
    data = document(generation, dag_id)
    return None if data is None else decode(PipelineDocument, data)


def read_directory(generation: Path) -> Directory:
    """Read the rows of all tables of a generation.

    Raises:
        OSError, ValueError: it is missing or damaged.
    """
    return msgspec.json.decode((generation / TABLES).read_bytes(), type=Directory)


def read_placement(generation: Path) -> PlacementDocument:
    """Read which tables share which DAGs in a generation.

    Raises:
        OSError, GddlError, ValueError: it is missing or damaged.
    """
    return decode(PlacementDocument, json.loads((generation / PLACEMENT).read_bytes()))


def read_specs(generation: Path) -> Iterator[TableSpec]:
    """Every row of a generation, without damaged documents."""
    for path in sorted((generation / "pipelines").glob("*.json")):
        with contextlib.suppress(AttributeError, OSError, ValueError, GddlError):
            for data in json.loads(path.read_bytes()).values():
                yield from decode(PipelineDocument, data).specs
