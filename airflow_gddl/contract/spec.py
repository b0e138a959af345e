"""What a metadata row says, and what a job is told: frozen, standard library only.

pydantic validates these same classes where it is installed (`airflow_gddl.metadata`), so there is one definition.
Field docstrings become the descriptions of the generated JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_gddl.contract.durations import seconds

CONTRACT_VERSION = 1
DEFAULT_TRIGGER = "10s"
"""Time between two looks of a continuous table whose row names none."""

Priority = Literal["low", "normal", "high", "critical"]
DeleteMode = Literal["hard", "soft"]
TieBreak = Literal["delete_wins", "last_arrival"]
BadRowPolicy = Literal["quarantine", "fail"]
NewColumnPolicy = Literal["add", "rescue", "ignore", "fail"]
TypeChangePolicy = Literal["widen", "rescue", "fail"]
DroppedColumnPolicy = Literal["keep", "null", "fail"]
MaskMethod = Literal["hash", "null"]
SubMicrosecondPolicy = Literal["truncate", "round", "quarantine"]
EngineName = Literal["spark", "delta_rs"]
SpreadName = Literal["spark", "processes"]
AirflowView = Literal["table", "mapped", "pack"]
Generations = Literal["auto", "one", "by_time"]
Action = Literal[
    "run", "plan", "verify", "explain", "errors_list", "errors_replay", "maintain", "erase", "sweep_release"
]  # fmt: skip

_STRICT = {"extra": "forbid", "use_attribute_docstrings": True}


@dataclass(frozen=True, kw_only=True)
class SchemaEvolution:
    """What a change of the source's schema does to the tables (design, rule 11)."""

    __pydantic_config__ = _STRICT

    new_column: NewColumnPolicy = "add"
    """A column the table lacks: `add` it at the end, `rescue` its values, `ignore` it, or `fail`."""
    type_change: TypeChangePolicy = "widen"
    """A type that differs: `widen` along Delta's list (else quarantine), `rescue` what doesn't fit, or `fail`."""
    dropped_column: DroppedColumnPolicy = "keep"
    """A column that no longer comes: `keep` stored values of updated rows, `null` them, or `fail`."""


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """One metadata row, defaults filled in. `table` is the identity for ever."""

    __pydantic_config__ = _STRICT

    table: str
    """`schema.name` in the source."""
    keys: tuple[str, ...]
    """Primary key columns; `[]` makes an append-only replica."""
    source: str = "default"
    """The source database's short name; groups tables into packs."""
    sequence_by: tuple[str, ...] = ()
    """Columns that order changes, compared left to right; empty: the dialect's own choice."""
    size: str = "small"
    """`small`, `medium`, `large` or any tier of `gddl.yaml`."""
    priority: Priority = "normal"
    """Which table starts first when slots are short."""
    schedule: str | Mapping[str, tuple[str, ...]] | None = "@hourly"
    """Cron, preset, `continuous`, `{assets: [...]}` or null for none."""
    trigger: str | None = None
    """Keeps the table under a continuous job, and says how long it waits between two looks, e.g. `30s`."""
    freshness: str | None = None
    """Longest allowed lag from source commit to replica, e.g. `30m`."""
    delete: DeleteMode = "hard"
    """`soft` keeps the row and sets `_gddl.deleted`."""
    history: bool = False
    """Also keep SCD type 2 in `<name>__history`."""
    track_history_except: tuple[str, ...] = ()
    """Columns whose change alone opens no new version."""
    tie_break: TieBreak = "delete_wins"
    """Who wins when two different changes of a key have the same sequence."""
    before_image_prefix: str | None = None
    """Prefix of before-image columns, e.g. `BI_`."""
    ignore_null_updates: bool = False
    """A null in an update keeps the stored value."""
    columns_to_update: str | None = None
    """Source column that lists the columns a change carries (comma-separated or an array)."""
    force_update: str | None = None
    """Boolean source column: apply this change whatever its sequence."""
    columns: tuple[str, ...] | None = None
    """Only these columns (and the keys) reach the lake; null: all."""
    exclude_columns: tuple[str, ...] = ()
    """These columns never reach the lake."""
    mask: Mapping[str, MaskMethod] = field(default_factory=dict)
    """Column to `hash` (SHA-256 of the text, hexadecimal) or `null`, before the first write."""
    schema_evolution: SchemaEvolution = field(default_factory=SchemaEvolution)
    """What new, changed and dropped columns do."""
    on_bad_row: BadRowPolicy = "quarantine"
    """`fail` stops the batch before anything is written."""
    sub_microseconds: SubMicrosecondPolicy = "truncate"
    """Times with digits past the microsecond: `truncate` or `round` them, or `quarantine` the row."""
    cluster_by: tuple[str, ...] = ()
    """Columns to cluster the replica by; empty: none."""
    table_properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties set when the replica is created."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Free labels."""
    owner: str | None = None
    """Team or person to tell."""
    airflow: AirflowView | None = None
    """What Airflow shows: a DAG of the `table`, a `mapped` task in its pack's DAG, or the `pack`; null: as its tier."""
    depends_on: tuple[str, ...] = ()
    """Tables (`schema.name`) to be loaded first."""
    enabled: bool = True
    """`false` stops the table and keeps what it has."""
    dialect: str = "dms"
    """Who wrote the files: `dms`, `debezium`, or a dialect that another package brings."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The dialect's own options; see `DmsOptions`, `DebeziumOptions`."""
    tombstone_retention: str = "7d"
    """How long a delete is remembered against late changes."""
    changes_retention: str | None = None
    """How long changes that no longer matter to the replica stay in the change table; null: for ever."""
    vacuum_retention: str = "7d"
    """How long files that no version needs any more stay in storage; `1d` at least."""
    settle: str | None = None
    """How long a landed file must not have changed before it is loaded; null: `3s` on file systems, none on S3."""
    generations: Generations = "auto"
    """A first load of a folder with load files newer than changes: `one` load, or a new one each time (`by_time`)."""
    sweep_after: str = "1h"
    """A reload of some load files is whole after so long without another; `0s`: at once."""
    sweep_limit: float = 0.34
    """Largest share of its rows, 0 to 1, that a reload may remove from the replica without a person's release."""

    @property
    def cadence(self) -> str | Mapping[str, tuple[str, ...]] | None:
        """The schedule that holds: `trigger` alone makes a table continuous."""
        return "continuous" if self.trigger is not None else self.schedule

    @property
    def look_seconds(self) -> float:
        """Time between two looks of a continuous job."""
        return float(seconds(self.trigger or DEFAULT_TRIGGER))

    @property
    def schema_name(self) -> str:
        return self.table.split(".", 1)[0]

    @property
    def name(self) -> str:
        return self.table.split(".", 1)[1]


@dataclass(frozen=True, kw_only=True)
class TierSpec:
    """What a size means."""

    __pydantic_config__ = _STRICT

    engine: EngineName = "delta_rs"
    """What applies a batch: `spark`, or for small tables `delta_rs`, which needs none."""
    tables_per_job: int = 200
    """Tables that share one job; 1 gives each its own DAG."""
    airflow: AirflowView | None = None
    """What Airflow shows of its tables, see the row's `airflow`; null: `mapped` in small fleets, else `pack`."""
    split_by_owner: bool = False
    """Packs hold tables of one owner each, so that access to their DAGs can be given by team."""
    max_files_per_batch: int = 1000
    """A batch holds at most so many files."""
    max_bytes_per_batch: int = 4 * 1024**3
    """A batch holds at most so many bytes, but always one file."""
    deletion_vectors: bool = False
    """Create tables with deletion vectors: far fewer rows rewritten, but not every reader knows them."""
    delta_rs_max_bytes: int = 128 * 1024**2
    """Under `delta_rs`, a table or file with more bytes is left to `spark`; batches hold at most half of it."""
    delta_rs_memory: str = "2g"
    """Under `delta_rs`, memory of each table that is worked on."""
    spread: SpreadName = "spark"
    """Under `delta_rs`, on one machine: over Spark tasks, or over `processes` of the machine, which need no Java."""
    delta_rs_timeout: str = "1h"
    """Under `delta_rs`, longest time that one table may take in a job."""
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
    """Longest time that one Airflow task may take to load its tables; a run may take twice that and an hour."""
    queue: str | None = None
    """Airflow queue of its loads; null: that of `default_args`, else Airflow's default queue."""
    executor_config: Mapping[str, Any] = field(default_factory=dict)
    """What Airflow's executor is given with its loads, in plain values."""
    compute: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per runner: its own settings."""


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


@dataclass(frozen=True, kw_only=True)
class Roots:
    """Where files land and where tables live: absolute local paths or `s3://bucket/prefix`."""

    __pydantic_config__ = _STRICT

    landing: str
    lake: str


@dataclass(frozen=True, kw_only=True)
class Continuous:
    """A continuous job: it looks at each table again after its `trigger`, and ends when it is told to."""

    __pydantic_config__ = _STRICT

    folder: str = ""
    """Where the tables are listed as they are now, and where it is asked to stop; empty: neither. See `standing`."""
    seconds: float | None = None
    """It ends by itself after so long; null: never."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What one run is asked to do beyond the ordinary."""

    __pydantic_config__ = _STRICT

    action: Action = "run"
    full_refresh: bool = False
    resync: bool = False
    """With `full_refresh`: check what was built, and swap only if it is no worse than what there is."""
    wait_seconds: float = 0.0
    """How long to wait for a table that another run holds; 0 stops at once with `TABLE_BUSY`."""
    full_listing: bool = False
    """List the whole landing folder even if the cursor would allow less."""
    limit: int = 100
    """Rows that `errors_list` returns, keys that `verify` names, changes that `explain` reads, at most."""
    max_batches: int | None = None
    """Stop after so many batches; null: work off all that waits."""
    dry_run: bool = False
    """`maintain`: tell what there is to do, and do nothing."""
    key: Mapping[str, str] = field(default_factory=dict)
    """`erase`, `explain`: key column to its value as text; an empty name stands for the only key column."""
    source_connection: str = ""
    """`verify`: name of the connection to the source, instead of the row's `verify_connection`."""
    settle_seconds: float | None = None
    """`verify`: how long a change may take from the source to the replica; null: the row's freshness, or an hour."""
    asked_by: str = ""
    """`erase`: who asked, for the record."""
    origin: tuple[str, ...] = ()
    """Airflow's DAG id, run id and task id; empty where it did not order the run."""
    continuous: Continuous | None = None
    """`run`: go on instead of ending when nothing waits; null: end."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """The whole order given to one job: `gddl-job --spec` reads its JSON."""

    __pydantic_config__ = _STRICT

    run_id: str
    roots: Roots
    tables: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec] = field(default_factory=lambda: dict(DEFAULT_TIERS))
    options: JobOptions = field(default_factory=JobOptions)
    contract_version: int = CONTRACT_VERSION

    @property
    def log_group(self) -> str:
        """Whose logs the job's log is among: Airflow's DAG that ordered it, else its only table, else `jobs`."""
        if self.options.origin:
            return self.options.origin[0]
        return self.tables[0].table if len(self.tables) == 1 else "jobs"
