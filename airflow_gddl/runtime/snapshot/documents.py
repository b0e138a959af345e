"""Documents in a snapshot's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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


FORMAT = 3


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
            "timing": Timing(**{**timing, "assets": tuple(timing["assets"])}),
            "tags": tuple(entry["tags"]),
            "tables": tuple(entry["tables"]),
        }
    )
