"""`TierSpec`: settings of a row's `size`. Import it from `airflow_gddl.contract.spec`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_gddl.contract.sizes import size_bytes
from airflow_gddl.contract.table_spec import STRICT, AirflowView

EngineName = Literal["spark", "delta_rs"]
SpreadName = Literal["spark", "processes"]


@dataclass(frozen=True, kw_only=True)
class TierSpec:
    """What a size means."""

    __pydantic_config__ = STRICT

    engine: EngineName = "delta_rs"
    """Engine that applies a batch: `spark`, or `delta_rs` for small tables, without a Spark session."""
    tables_per_job: int = 200
    """Tables that share one job; 1 gives each its own DAG."""
    airflow: AirflowView | None = None
    """Default of the row's `airflow`; null: `mapped` for few tables, else `pack`."""
    split_by_owner: bool = False
    """Packs hold tables of one owner each, so that access to their DAGs can be given by team."""
    max_files_per_batch: int = 1000
    """Maximum files in a batch."""
    max_bytes_per_batch: int = 4 * 1024**3
    """Maximum bytes in a batch, which always has at least one file."""
    max_inflated_bytes: int | None = None
    """Maximum bytes of a compressed file's content; larger files are quarantined (`FILE_TOO_LARGE`). Null: a quarter of
    `delta_rs_memory`, or under `spark` half of `memory`."""
    max_inflation: int = 250
    """How many times its size a compressed file's content may have; contents of up to 64 MiB may have more."""
    deletion_vectors: bool = False
    """Create tables with deletion vectors: far fewer rows rewritten, but not every reader knows them."""
    delta_merge: bool = False
    """Under `spark`, every commit is one of Spark's Delta, by `MERGE INTO` where rows change; slower."""
    delta_rs_max_bytes: int = 128 * 1024**2
    """Under `delta_rs`, larger tables and files are processed by `spark`; batches have at most half as many bytes."""
    delta_rs_memory: str = "2g"
    """Under `delta_rs`, memory limit for each table."""
    spread: SpreadName = "spark"
    """Under `delta_rs`, on one machine: over Spark tasks, or over `processes` of the machine, which need no Java."""
    delta_rs_timeout: str = "1h"
    """Under `delta_rs`, time limit for each table in a job."""
    cores: int = 2
    """Cores of an embedded or cluster job."""
    memory: str = "4g"
    """Driver memory of an embedded job, executor memory on a cluster."""
    workers: int = 1
    """Executors on a cluster."""
    pool: str | None = None
    """Airflow pool; null: `gddl_<tier>`."""
    slots: int = 4
    """Slots of that pool."""
    run_timeout: str = "6h"
    """Timeout of an Airflow load task; a run may take twice that and an hour."""
    queue: str | None = None
    """Airflow queue of its loads; null: that of `default_args`, else Airflow's default queue."""
    executor_config: Mapping[str, Any] = field(default_factory=dict)
    """`executor_config` of its load tasks, in plain values."""
    compute: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by runner."""

    @property
    def inflated_bytes(self) -> int:
        """`max_inflated_bytes`, or what the tier's memory allows."""
        if self.max_inflated_bytes is not None:
            return self.max_inflated_bytes
        return size_bytes(self.memory) // 2 if self.engine == "spark" else size_bytes(self.delta_rs_memory) // 4


DEFAULT_TIERS: Mapping[str, TierSpec] = {
    "small": TierSpec(),
    # Bounds as measured: docs/decisions/031.
    "medium": TierSpec(
        tables_per_job=1,
        max_bytes_per_batch=128 * 1024**2,
        delta_rs_max_bytes=1024**3,
        delta_rs_memory="6g",
        memory="6g",
    ),
    "large": TierSpec(
        engine="spark",
        tables_per_job=1,
        deletion_vectors=True,
        max_bytes_per_batch=64 * 1024**3,
        memory="8g",
        run_timeout="24h",
    ),
}
