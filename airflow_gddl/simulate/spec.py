"""What to simulate: frozen, standard library only; `check` refuses what can't be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.extensions import DateDelimiter, DatePartition
from airflow_gddl.contract.row_checks import table_name_fault

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["parquet", "parquet.gz", "csv", "csv.gz", "json", "json.gz"]
TimeForm = Literal["us", "ms", "string"]
EventKind = Literal["add_column", "drop_column", "rename_case", "reorder", "widen", "add_nested_field"]
_ONLY_OF_DMS = (
    "with Debezium leave out before_images, columns_to_update, ar_h_columns, include_op_for_full_load, segments, "
    "date_partition, key_updates and reloads"
)
_POSITIONAL: tuple[EventKind, ...] = ("add_column", "drop_column", "reorder")


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """What the source database knows of a table.

    Attributes:
        keys: primary key; unique and never null in the input; empty: the source only inserts.
        surrogate: adds a leading `int64` column of this name that numbers the rows from 1.
    """

    keys: tuple[str, ...]
    surrogate: str | None = None


@dataclass(frozen=True, kw_only=True)
class OpMix:
    """Relative weights of the operations."""

    update: float = 0.60
    insert: float = 0.25
    delete: float = 0.15


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """How the service was configured to write its files.

    Attributes:
        format: `json` is Debezium's: a line an event, as a sink writes them; all others are DMS's.
        include_op_for_full_load: LOAD files have the operation too (`I`).
        sequence_column, timestamp_column: names of the change sequence and of the commit time.
        full_load_sequence: what LOAD rows have for a sequence.
        commit_times, source_times: how the commit time and the source's timestamps are written.
        booleans_as_strings: `true` and `false` as text.
        ar_h_columns: also `AR_H_CHANGE_SEQ`, `AR_H_OPERATION`, `AR_H_STREAM_POSITION`, `AR_H_COMMIT_TIMESTAMP`.
        date_partition, date_delimiter: folders of change files.
        segments: 0: one load; n: a parallel load of n segments, distinguished by file name or by folder.
        before_images: prefix of before-image columns, filled for updates; None: none.
        deletes_carry_only_keys: other columns of a delete are null.
        columns_to_update: column that lists what an update carries, the rest being null; None: all is carried.
    """

    format: Format = "parquet"
    csv_header: bool = False
    csv_null: str = "NULL"
    include_op_for_full_load: bool = False
    sequence_column: str = "transact_seq"
    timestamp_column: str = "dms_timestamp"
    full_load_sequence: Literal["null", "empty"] = "null"
    commit_times: TimeForm = "us"
    source_times: TimeForm = "us"
    booleans_as_strings: bool = False
    ar_h_columns: bool = False
    date_partition: DatePartition = "none"
    date_delimiter: DateDelimiter = "slash"
    segments: int = 0
    segment_style: Literal["name", "folder"] = "name"
    rows_per_load_file: int = 100_000
    files_per_round: int = 2
    before_images: str | None = None
    deletes_carry_only_keys: bool = True
    columns_to_update: str | None = None

    @property
    def debezium(self) -> bool:
        return self.format.startswith("json")


@dataclass(frozen=True, kw_only=True)
class Troubles:
    """What goes wrong. Shares are 0 to 1 and hit at least one candidate when above 0; counts are per table and round.

    Attributes:
        late: share of a round's files that arrive a round later, under their old names.
        torn: share of a round's files that are cut off at first and whole a round later.
        repeated: share of the files of this and the last round that come again under a new name, whole or in part.
        out_of_order: rows are shuffled within and across the files of a round.
        ties: changes that share their sequence with a different one of the same key, which comes before them.
        key_updates: share of updates that change the key; without before images the old row stays in the replica.
        tricky_keys: new text keys differ from old ones only by case, trailing space or Unicode form.
        unknown_op, null_key, null_sequence, unparsable_sequence, bad_value: rows for the quarantine.
        truncated_file, empty_file: one file a round that can't be read, or has no bytes.
        clutter: hidden and temporary files beside the first file of each step.
    """

    late: float = 0.0
    torn: float = 0.0
    repeated: float = 0.0
    out_of_order: bool = False
    ties: int = 0
    key_updates: float = 0.0
    tricky_keys: bool = False
    unknown_op: int = 0
    null_key: int = 0
    null_sequence: int = 0
    unparsable_sequence: int = 0
    bad_value: int = 0
    truncated_file: bool = False
    empty_file: bool = False
    clutter: bool = False


@dataclass(frozen=True, kw_only=True)
class SchemaEvent:
    """The source's schema changes at the start of a round.

    Attributes:
        round: from 1.
        table: None: every table that has a fitting column.
        column: None: the first that fits (`drop_column`: the last).
    """

    round: int
    kind: EventKind
    table: str | None = None
    column: str | None = None


@dataclass(frozen=True, kw_only=True)
class SimulateSpec:
    """Everything a simulation depends on: equal specs write equal bytes.

    Attributes:
        input: folder of `<table>.csv`, `.csv.gz`, `.parquet` or folders of parquet; or tables already in memory.
        landing: local root, or the `s3://` URL of one; files go to `landing/<schema>/<table>/`.
        tables: table name to its shape; only these are simulated.
        changes: a float is the share of the table's rows that change in a round, an int a count.
        start: time of the full load; round n takes place `n * round_seconds` later.
        made_up: share of new values that are made up from the column's type, extremes among them; the others are taken
            from the column. Columns that are all alike then keep their value if the share is 0.
        reload_rounds: rounds that begin with a new full load under the old names. The replica must have taken in all
            before such a round lands, for LOAD files then replace what was not read yet.
    """

    input: Path | Mapping[str, pa.Table]
    landing: Path | str
    schema: str
    tables: Mapping[str, TableShape]
    rounds: int = 3
    changes: float | int = 0.02
    mix: OpMix = field(default_factory=OpMix)
    seed: int = 0
    start: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    round_seconds: int = 3600
    made_up: float = 0.4
    delivery: Delivery = field(default_factory=Delivery)
    troubles: Troubles = field(default_factory=Troubles)
    events: tuple[SchemaEvent, ...] = ()
    reload_rounds: tuple[int, ...] = ()


def check(spec: SimulateSpec) -> None:
    """
    Raises:
        MetadataError: `SIMULATE_SPEC_INVALID`.
    """
    for good, what, remedy in (*_numbers(spec), *_combinations(spec)):
        if not good:
            raise MetadataError("SIMULATE_SPEC_INVALID", what, remedy=remedy)


def _numbers(spec: SimulateSpec) -> tuple[tuple[bool, str, str], ...]:
    troubles, mix = spec.troubles, spec.mix
    shares = {name: getattr(troubles, name) for name in ("late", "torn", "repeated", "key_updates")}
    wrong = {name: value for name, value in (shares | {"made_up": spec.made_up}).items() if not 0 <= value <= 1}
    names = {f"{spec.schema}.{name}": table_name_fault(f"{spec.schema}.{name}") for name in spec.tables}
    refused = {name: fault for name, fault in names.items() if fault}
    whole = (spec.delivery.files_per_round, spec.delivery.rows_per_load_file, spec.round_seconds)
    weights = (mix.update, mix.insert, mix.delete)
    rounds = (*(event.round for event in spec.events), *spec.reload_rounds)
    return (
        (bool(spec.tables), "no tables to simulate", "name at least one in `tables`"),
        (spec.rounds >= 0, f"rounds is {spec.rounds}", "0 or more"),
        (not refused, f"no table can be called {', '.join(map(repr, refused))}", "; ".join(refused.values())),
        (not wrong, ", ".join(f"{name} is {value}" for name, value in wrong.items()), "a share is from 0 to 1"),
        (all(n >= 1 for n in whole), f"sizes are {whole}", "files, rows, seconds: 1 or more"),
        (min(weights) >= 0 and sum(weights) > 0, f"mix is {weights}", "weights of 0 or more, not all 0"),
        (spec.changes >= 0, f"changes is {spec.changes}", "a share or a count of 0 or more"),
        (all(1 <= n <= spec.rounds for n in rounds), f"events or reloads in rounds {rounds}", f"1 to {spec.rounds}"),
        (spec.start.tzinfo is not None, f"start {spec.start} has no time zone", "give one, e.g. UTC"),
    )


def _combinations(spec: SimulateSpec) -> tuple[tuple[bool, str, str], ...]:
    delivery, troubles = spec.delivery, spec.troubles
    headless = delivery.format.startswith("csv") and not delivery.csv_header
    cut = troubles.truncated_file or troubles.torn > 0
    positional = any(event.kind in _POSITIONAL for event in spec.events)
    of_dms = (
        delivery.before_images, delivery.columns_to_update, delivery.ar_h_columns, delivery.include_op_for_full_load,
        delivery.segments, delivery.date_partition != "none", troubles.key_updates, spec.reload_rounds,
    )  # fmt: skip
    return (
        (not (delivery.debezium and any(of_dms)), "a setting that only DMS's files have", _ONLY_OF_DMS),
        (not (delivery.format == "csv" and cut), "a cut-off plain CSV file is readable", "take csv.gz or parquet"),
        (not (headless and positional), "CSV without a header can't say that columns changed", "set csv_header"),
    )
