"""`TableSpec`: one metadata row, created by the catalog and passed to jobs.

Field docstrings become the descriptions of the generated JSON Schema. Import it from `airflow_gddl.contract.spec`.

Expressions over the columns of a table (rules of expectations, row filters, derived columns) are trees.
`airflow_gddl.metadata.expression_text` reads them from the text of a row, and `spark_jobs.rules.evaluate` computes
them, so that jobs never parse text. A tree says what it means without its text: versions of a parser don't matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

from airflow_gddl.contract.basics import FEATURE, STRICT, AirflowView, Priority
from airflow_gddl.contract.codec import IGNORABLE
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.result import CommitMethod

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/")
CONDITIONS = frozenset({*COMPARISONS, "and", "or", "not", "in", "between", "is null", "like", "regexp_like"})
"""Operations whose value is true, false or null."""
LITERALS = ("boolean", "date_value", "number", "text", "timestamp_value")
COLUMN = "column"
FUNCTIONS: Mapping[str, tuple[int, int]] = {
    "abs": (1, 1),
    "coalesce": (2, 20),
    "concat": (2, 20),
    "date": (1, 1),
    "day": (1, 1),
    "hour": (1, 1),
    "length": (1, 1),
    "lower": (1, 1),
    "mod": (2, 2),
    "month": (1, 1),
    "nullif": (2, 2),
    "regexp_like": (2, 2),
    "round": (1, 2),
    "substring": (2, 3),
    "trim": (1, 1),
    "upper": (1, 1),
    "year": (1, 1),
}
"""Name to the least and the greatest number of arguments."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """A part of an expression.

    Attributes:
        op: `column`, one of `LITERALS`, `ARITHMETIC`, `CONDITIONS` or `FUNCTIONS`.
        value: name of a column, or a literal as text: times as ISO 8601, in UTC where no zone is given.
        args: operands; of `in` the value and then the literals.
    """

    op: str
    value: str = ""
    args: tuple[Term, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its columns as the text has them, each once."""
        return tuple(dict.fromkeys(term.value for term in self._all() if term.op == COLUMN))

    @property
    def is_condition(self) -> bool:
        """Whether its value may be true or false, as far as that is known without the columns' types."""
        return self.op in CONDITIONS or self.op in (COLUMN, "boolean", "coalesce", "nullif")

    def _all(self) -> Iterator[Term]:
        waiting = [self]
        while waiting:
            term = waiting.pop(0)
            yield term
            waiting[:0] = term.args

    def __str__(self) -> str:
        """In one form for equal trees."""
        if self.op == COLUMN:
            return '"' + self.value.replace('"', '""') + '"'
        if self.op in LITERALS:
            text = "'" + self.value.replace("'", "''") + "'"
            kinds = {"text": text, "date_value": f"date {text}", "timestamp_value": f"timestamp {text}"}
            return kinds.get(self.op, self.value)
        if self.op in ("and", "or", "like", *COMPARISONS, *ARITHMETIC) and len(self.args) > 1:
            return "(" + f" {self.op} ".join(map(str, self.args)) + ")"
        return f"{self.op}({', '.join(map(str, self.args))})"


DEFAULT_TRIGGER = "10s"
"""Default time between two polls of a continuous table."""

DeleteMode = Literal["hard", "soft"]
TieBreak = Literal["delete_wins", "last_arrival"]
BadRowPolicy = Literal["quarantine", "fail"]
MaskMethod = Literal["hash", "hmac", "null"]
SubMicrosecondPolicy = Literal["truncate", "round", "quarantine"]
Compatibility = Literal["none", "backward"]
TruncatePolicy = Literal["apply", "hold", "report"]
TableMode = Literal["changes", "snapshots"]
Generations = Literal["auto", "one", "by_time"]
ExpectationPolicy = Literal["warn", "quarantine", "fail"]
LandingAction = Literal["delete", "move"]
NewColumnPolicy = Literal["add", "rescue", "ignore", "fail"]
TypeChangePolicy = Literal["widen", "rescue", "text", "fail"]
DroppedColumnPolicy = Literal["keep", "null", "fail"]

SourceType = Literal[
    "cassandra", "db2", "documentdb", "informix", "mariadb", "mongodb", "mysql", "oracle", "postgresql", "spanner",
    "sqlserver", "sybase", "vitess",
]  # fmt: skip
"""Kinds of source databases: what AWS DMS and Debezium's connectors read."""

SHARD_COLUMN = "_source"
"""First key column of tables that have several sources: the short name of the row's source."""


def titled(table: str, shard: str | None) -> str:
    """A table, or one of its sources, in messages; without a source: the table."""
    return f"source {shard} of {table}" if shard else table


HASHED = ("hash", "hmac")
"""Masks that make a text of every value, equal for equal values."""


def lowered(names: Iterable[str]) -> frozenset[str]:
    """Names of columns as they are compared: without case, as Delta does."""
    return frozenset(name.lower() for name in names)


@dataclass(frozen=True, kw_only=True)
class SchemaEvolution:
    """Effects of source schema changes on the tables (semantics, rule 11)."""

    __pydantic_config__ = STRICT

    new_column: NewColumnPolicy = "add"
    """A column the table lacks: `add` it at the end, `rescue` its values, `ignore` it, or `fail`."""
    type_change: TypeChangePolicy = "widen"
    """A type that differs: `widen` along Delta's list (else quarantine), `rescue` what doesn't fit, make the column
    `text` for good where the list has no type for both, or `fail`."""
    dropped_column: DroppedColumnPolicy = "keep"
    """A column that no longer comes: `keep` stored values of updated rows, `null` them, or `fail`."""


@dataclass(frozen=True, kw_only=True)
class SchemaGate:
    """What files must have; else their batch is refused before anything is written, whatever policies allow."""

    __pydantic_config__ = STRICT

    require: tuple[str, ...] = ()
    """Columns that every file must have; deletes may lack them."""
    compatible: Compatibility = "none"
    """`backward`: readers of the table as it is keep working, since files have all of its columns, of types that its
    columns hold; new columns may come."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What must hold for each row that is inserted or updated (docs/semantics.md, section 18)."""

    __pydantic_config__ = STRICT

    rule: str
    """Condition over columns of the table, e.g. `qty > 0`; a row fails where it is false or null."""
    on: ExpectationPolicy = "quarantine"
    """Rows that fail are loaded (`warn`), quarantined, or stop the batch before anything is written (`fail`)."""
    at_most: float | None = None
    """Largest share of a batch's rows, 0 to 1, that may fail before the batch stops; null: any (`fail`: none)."""

    @property
    def limit(self) -> float:
        """The share of rows that may fail."""
        if self.at_most is not None:
            return self.at_most
        return 0.0 if self.on == "fail" else 1.0


@dataclass(frozen=True, kw_only=True)
class LandingRetention:
    """What maintenance does to landed files that were ingested and are old (docs/repair.md)."""

    __pydantic_config__ = STRICT

    after: str
    """Age of a file, by its last modification; at least `1d`."""
    action: LandingAction = "delete"
    """`delete` the file, or `move` it."""
    to: str | None = None
    """Folder that files are moved to, in the landing's bucket, outside of landing and lake; null with `delete`."""


@dataclass(frozen=True, kw_only=True)
class InitialLoad:
    """How `gddl load` reads the table from its source database (docs/initial-load.md)."""

    __pydantic_config__ = STRICT

    chunk_rows: int = 500_000
    """Rows of a file, which are read by one query, and kept in memory compressed; at least 1."""
    parallel: int = 4
    """Connections to the source at once, 1 to 64."""
    max_rows_per_second: int | None = None
    """Most rows a second of all connections together; null: any number."""
    statement_timeout: str = "10m"
    """Time after which the database ends a query."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a source states of itself, see `source_type` and `region` of a row."""

    source_type: SourceType | None = None
    region: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """One metadata row, defaults filled in. `table` is the permanent identity: tables, ledger, results, DAG ids.

    `source_table` and `landing` follow from the row's source and are not written in rows.
    """

    __pydantic_config__ = STRICT

    table: str
    """`schema.name` in the source; resolved: that of the lake's table, as `target` names it."""
    keys: tuple[str, ...]
    """Primary key columns; `[]` makes an append-only replica."""
    source: str = "default"
    """The source database's short name; groups tables into packs."""
    target: str | None = None
    """`schema.name` of the lake's table, with `{source}`, `{schema}`, `{table}`; null: `table`."""
    source_table: str | None = None
    """`schema.name` in the source and below its landing root; null: `table`. Resolved from `table`, never written."""
    landing: str | None = None
    """Landing root of a source that `gddl.yaml` declares; null: that of `Roots`. Resolved, never written."""
    source_type: SourceType | None = field(default=None, metadata={IGNORABLE: True})
    """Kind of the source database, which the change table tells of each event; null: not told."""
    region: str | None = field(default=None, metadata={IGNORABLE: True})
    """Data centre or region of the source database, a short name, which the change table tells of each event."""
    shards: tuple[str, ...] = ()
    """Sources of `gddl.yaml` that each hold a part of the table; `_source` becomes its first key column."""
    shard_landings: Mapping[str, str] = field(default_factory=dict)
    """Landing root of each of the `shards`. Resolved, never written."""
    shard_origins: Mapping[str, Origin] = field(default_factory=dict, metadata={IGNORABLE: True})
    """Origin of those `shards` whose sources state one. Resolved, never written."""
    mode: TableMode = "changes"
    """What lands: `changes` of a CDC service, or `snapshots`: exports of the whole table (docs/snapshots.md)."""
    sequence_by: tuple[str, ...] = ()
    """Columns that order changes, compared left to right; empty: the dialect's own choice."""
    size: str = "small"
    """`small`, `medium`, `large` or any tier of `gddl.yaml`."""
    priority: Priority = "normal"
    """Which table starts first when slots are short."""
    schedule: str | Mapping[str, tuple[str, ...]] | None = "@hourly"
    """Cron, preset, `continuous`, `{assets: [...]}` or null for none."""
    trigger: str | None = None
    """Loads the table in a continuous job, with this time between two polls, e.g. `30s`."""
    freshness: str | None = None
    """Longest time since the replica was last known to be up to date (not the lag), e.g. `30m`."""
    heartbeat: str | None = field(default=None, metadata={IGNORABLE: True})
    """Heartbeat table of its source, `schema.name`: shows that the source's log goes on while the table is quiet.
    Resolved: that of the lake's table."""
    delete: DeleteMode = "hard"
    """`soft` keeps the row and sets `_gddl.deleted`."""
    history: bool = False
    """Also keep SCD type 2 in `<name>__history`."""
    track_history_except: tuple[str, ...] = ()
    """Columns whose changes create no new version."""
    tie_break: TieBreak = "delete_wins"
    """Which of two different changes of a key with the same sequence wins."""
    before_image_prefix: str | None = None
    """Prefix of before-image columns, e.g. `BI_`."""
    ignore_null_updates: bool = False
    """A null in an update keeps the stored value."""
    columns_to_update: str | None = None
    """Source column that lists the columns a change carries (comma-separated or an array)."""
    force_update: str | None = None
    """Boolean source column: apply this change regardless of its sequence."""
    columns: tuple[str, ...] | None = None
    """Only these columns, the keys, `columns_to_update` and `force_update` reach the lake; null: all."""
    exclude_columns: tuple[str, ...] = ()
    """These columns never reach the lake."""
    mask: Mapping[str, MaskMethod] = field(default_factory=dict)
    """Column to `hmac` (keyed hash of the text), `hash` (SHA-256, which can be guessed) or `null`, before the first
    write."""
    absent_columns: tuple[str, ...] = ()
    """Names in `mask` and `exclude_columns` that the source need not have, e.g. of a column that comes later."""
    mask_key_id: str = ""
    """Tells which key masked columns have under `hmac`. Resolved by jobs, never written."""
    schema_evolution: SchemaEvolution = field(default_factory=SchemaEvolution)
    """What new, changed and dropped columns do."""
    schema: SchemaGate = field(default_factory=SchemaGate)
    """Schema gate: what files must have to be loaded at all."""
    on_bad_row: BadRowPolicy = "quarantine"
    """`fail` stops the batch before anything is written."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Column of the files to its name in the tables; all other fields of the row use the latter."""
    derive: Mapping[str, str] = field(default_factory=dict)
    """Columns that are computed from others, e.g. `{day: "date(created)"}`."""
    where: str | None = None
    """Row filter, a condition: only rows for which it is true are in the tables; null: all."""
    expect: Mapping[str, Expectation] = field(default_factory=dict)
    """Expectations of rows, by name."""
    expressions: Mapping[str, Term] = field(default_factory=dict)
    """Trees of the row's expressions, by their text. Resolved, never written."""
    truncate: TruncatePolicy = "hold"
    """A truncate of the source's table: `apply` it, `hold` it and all later files until `gddl release truncate`, or
    `report` it and keep the rows."""
    sub_microseconds: SubMicrosecondPolicy = "truncate"
    """Times with digits past the microsecond: `truncate` or `round` them, or `quarantine` the row."""
    cluster_by: tuple[str, ...] = ()
    """Columns to cluster the replica by; empty: none."""
    partition_by: tuple[str, ...] = ()
    """Partition columns of the replica, fixed once it exists; empty: none."""
    table_properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties set when the replica is created."""
    commit: CommitMethod | None = None
    """How batches are committed. `direct`: tasks write data files, and one Delta commit of ours names them. `merge`:
    rows are staged, and Spark's own `MERGE INTO` commits them, with any `tasks`; slower. Null: as the tier says."""
    iceberg: bool | int = field(default=False, metadata={FEATURE: "iceberg"})
    """Also write Iceberg metadata of replica and history, for readers without Delta support, of this format version;
    `true`: 2."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Free labels."""
    catalog: str | None = None
    """Catalog of `gddl.yaml` in which the table is registered; null: none."""
    description: str | None = None
    """Description of the table: comment of the replica and its catalog entry; null: keep existing comments."""
    column_descriptions: Mapping[str, str] = field(default_factory=dict)
    """Descriptions by column: comments of the replica's columns; other columns keep theirs."""
    owner: str | None = None
    """Team or person to notify."""
    airflow: AirflowView | None = None
    """What Airflow shows: a DAG of the `table`; in its pack's DAG a task `group` or a `mapped` task; or the `pack`
    alone; null: as its tier."""
    depends_on: tuple[str, ...] = ()
    """Tables (`schema.name`) to be loaded first."""
    enabled: bool = True
    """`false` stops loading the table and keeps its data."""
    dialect: str = "dms"
    """Writer of the files: `dms`, `debezium`, or a dialect of another package."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The dialect's own options; see `DmsOptions`, `DebeziumOptions`."""
    tombstone_retention: str = "7d"
    """How long tombstones are kept, which protect deletes against late changes."""
    changes_retention: str | None = None
    """How long superseded changes stay in the change table; null: forever."""
    vacuum_retention: str = "7d"
    """How long files that no version references stay in storage; at least `1d`."""
    landing_retention: LandingRetention | None = None
    """Removal of landed files after they were ingested, by maintenance; null: they stay."""
    initial_load: InitialLoad | None = None
    """Full load from the source database itself, by `gddl load` or the table's first run; null: from landed files."""
    settle: str | None = None
    """Time without modification before a landed file is loaded; null: `3s` on file systems, none on S3."""
    generations: Generations = "auto"
    """First load of a folder with load files newer than changes: `one` generation, or one for each time (`by_time`)."""
    sweep_after: str = "1h"
    """A partial reload is complete after this time without another load file; `0s`: immediately."""
    sweep_limit: float = 0.34
    """Largest share of its rows, 0 to 1, that a reload may remove from the replica without `gddl release sweep`."""

    @cached_property
    def features(self) -> Mapping[str, str]:
        """Fields that ask for a feature, each with the feature; empty for a plain row."""
        marked = ((one.name, one.metadata.get(FEATURE)) for one in fields(self))
        return {name: feature for name, feature in marked if feature and getattr(self, name)}

    @property
    def may_read_source(self) -> bool:
        """Whether jobs may read the source themselves (`contract.sources`), which a mode or an option asks for."""
        return self.mode != TableSpec.mode or bool(self.options)

    @property
    def cadence(self) -> str | Mapping[str, tuple[str, ...]] | None:
        """The effective schedule: `trigger` alone makes a table continuous."""
        return "continuous" if self.trigger is not None else self.schedule

    @property
    def look_seconds(self) -> float:
        """Time between two polls of a continuous job."""
        return float(seconds(self.trigger or DEFAULT_TRIGGER))

    @property
    def name_in_source(self) -> str:
        """`schema.name` in the source."""
        return self.source_table or self.table

    @property
    def qualified_name(self) -> str:
        """`source:schema.name`, which is independent of the target."""
        return f"{self.source}:{self.name_in_source}"

    @property
    def shard(self) -> str | None:
        """The source whose rows are meant, where the table has several sources and one of them is worked on."""
        return self.shards[0] if len(self.shards) == 1 else None

    def of_shard(self, shard: str) -> TableSpec:
        """The part of the table that one of its sources holds."""
        landing, origin = self.shard_landings.get(shard), self.shard_origins.get(shard, Origin())
        return replace(
            self, shards=(shard,), source=shard, landing=landing, source_table=self.name_in_source,
            source_type=origin.source_type or self.source_type, region=origin.region or self.region,
        )  # fmt: skip

    @property
    def schema_name(self) -> str:
        return self.table.split(".", 1)[0]

    @property
    def name(self) -> str:
        return self.table.split(".", 1)[1]
