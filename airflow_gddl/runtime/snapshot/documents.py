"""What a snapshot's files hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_gddl.contract.spec import Roots, TableSpec, TierSpec
from airflow_gddl.metadata.topology import Pipeline, Timing
from airflow_gddl.metadata.topology.rows import TableRow

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Dependency:
    """What is known of a table that others depend on.

    Attributes:
        dag_id: the pipeline that loads it; null when none does.
        why_not: why none does (`disabled`, `refused`); null when one does.
        spec: its row; null when none loads it.
    """

    table: str
    dag_id: str | None = None
    why_not: Literal["disabled", "refused"] | None = None
    spec: TableSpec | None = None


@dataclass(frozen=True, kw_only=True)
class PipelineDocument:
    """All that a worker needs of one pipeline, whatever else the metadata holds.

    Attributes:
        tiers: those that its tables use.
        runner_settings: what `gddl.yaml` says under `runners` for this runner.
        dependencies: tables of other pipelines that its tables depend on, sorted.
        aws_conn_id: Airflow connection that reaches S3 for the roots; null: the configured one, if any.
        metadata_at: when the newest file of the metadata was last modified, seconds since the epoch.
    """

    pipeline: Pipeline
    roots: Roots
    runner: str
    specs: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec]
    runner_settings: Mapping[str, Any] = field(default_factory=dict)
    dependencies: tuple[Dependency, ...] = ()
    aws_conn_id: str | None = None
    metadata_at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Directory:
    """Every table of the metadata in a short row, disabled ones too, sorted by name."""

    roots: Roots
    rows: tuple[TableRow, ...]
    aws_conn_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A catalog as documents. `problems`: a line each; `carried`: tables taken over from the snapshot before."""

    documents: tuple[PipelineDocument, ...]
    directory: Directory
    problems: tuple[str, ...]
    carried: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class State:
    """How the snapshot that serves came to be.

    Attributes:
        signature: of the metadata that it was made of.
        built_at: ISO 8601 UTC.
        checked_at: seconds since the epoch of the last look at a remote folder; 0 for local ones.
        stale_since: ISO 8601 UTC since when newer metadata can't be read; null when what serves is what is there.
        why: what stops it from being read; empty otherwise.
        tried: signature of the metadata that could not be read.
        carried: tables kept from the snapshot before, because a file that may hold them can't be read.
        newest: when the newest file that it was made of was last modified, seconds since the epoch.
    """

    signature: str
    built_at: str
    checked_at: float = 0.0
    newest: float = 0.0
    stale_since: str | None = None
    why: str = ""
    tried: str = ""
    carried: tuple[str, ...] = ()


def index_entry(pipeline: Pipeline) -> Pipeline:
    """What the DAG factory needs of it: all but the tables of a pack."""
    return replace(pipeline, tables=()) if pipeline.kind == "pack" else pipeline


def pipeline_of(entry: Mapping[str, Any]) -> Pipeline:
    """An index entry; unchecked, since this package wrote it and a damaged file is rebuilt."""
    timing = entry["timing"]
    return Pipeline(
        **{
            **entry,
            "timing": Timing(**{**timing, "assets": tuple(timing["assets"])}),
            "tags": tuple(entry["tags"]),
            "tables": tuple(entry["tables"]),
        }
    )
