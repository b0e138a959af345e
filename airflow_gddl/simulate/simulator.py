"""Full load and rounds of all tables, and the truth they lead to."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.simulate.events import Encoder, Namer, parquet_bytes, write
from airflow_gddl.simulate.source import Maker, Sequencer, SimulatedClock, SimulatedSourceTable, load_sources
from airflow_gddl.simulate.spec import Delivery, SimulateSpec, check
from airflow_gddl.simulate.table import Packer, SimulatedFolder, SimulatedTable, SimulateReport
from airflow_gddl.simulate.values import KeyMaker, SimulatedColumns, Values, chance, evolve

_KNOWN_SEQUENCES = ("transact_seq", "AR_H_CHANGE_SEQ")
_KNOWN_TIMES = ("dms_timestamp", "AR_H_COMMIT_TIMESTAMP")
_SQL: tuple[tuple[pa.DataType, str], ...] = (
    (pa.bool_(), "boolean"), (pa.int8(), "tinyint"), (pa.int16(), "smallint"), (pa.int32(), "int"),
    (pa.int64(), "bigint"), (pa.uint8(), "smallint"), (pa.uint16(), "int"), (pa.uint32(), "bigint"),
    (pa.uint64(), "decimal(20,0)"), (pa.float32(), "float"), (pa.float64(), "double"), (pa.date32(), "date"),
)  # fmt: skip


def metadata_row(table: str, columns: SimulatedColumns, delivery: Delivery) -> dict[str, object]:
    """Fields of a metadata row, only those that differ from their defaults.

    Args:
        table: `schema.name`.
    """
    row: dict[str, object] = {"table": table, "keys": list(columns.keys)}
    if delivery.debezium:
        return row | {"dialect": "debezium"}
    if delivery.sequence_column not in _KNOWN_SEQUENCES and not delivery.ar_h_columns:
        row["sequence_by"] = [delivery.sequence_column]
    if delivery.before_images:
        row["before_image_prefix"] = delivery.before_images
    if delivery.columns_to_update:
        row["columns_to_update"] = delivery.columns_to_update
    options = _options(columns, delivery)
    return row | ({"options": options} if options else {})


def _options(columns: SimulatedColumns, delivery: Delivery) -> dict[str, object]:
    csv = delivery.format.startswith("csv")
    names = Encoder(delivery, columns).changes([]).schema.names
    wanted = DmsOptions(
        date_partition=delivery.date_partition,
        date_delimiter=delivery.date_delimiter,
        timestamp_column=None if delivery.timestamp_column in _KNOWN_TIMES else delivery.timestamp_column,
        csv_header=csv and delivery.csv_header,
        csv_columns=tuple(names[1:]) if csv and not delivery.csv_header else (),
        csv_null=delivery.csv_null if csv else "NULL",
        types=_types(columns, delivery),
    )
    default = DmsOptions()
    changed = {f.name: getattr(wanted, f.name) for f in fields(wanted)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in changed.items()
        if value != getattr(default, name)
    }


def _types(columns: SimulatedColumns, delivery: Delivery) -> dict[str, str]:
    """Types of the columns that come as text though the source has another."""
    sent = {f.name: f.type for f in Encoder(delivery, columns).changes([]).schema}
    csv = delivery.format.startswith("csv")
    is_timed = delivery.source_times == "ms" and not csv
    typed = {c.delivered: sql_type(c.type) for c in columns.live if csv or sent[c.delivered] != c.type}
    return {name: kind for name, kind in typed.items() if kind and not (kind == "timestamp" and is_timed)}


def sql_type(kind: pa.DataType) -> str | None:
    """SQL type of a column that text stands for; null for text itself and what text can't stand for."""
    if pt.is_timestamp(kind):
        return "timestamp"
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for known, name in _SQL if known == kind), None)


class Simulator:
    """Writes a simulation step by step: the full load, then rounds 1, 2, ...

    Equal specs write equal bytes, whether in one process or, with `landed`, in several.
    """

    def __init__(self, spec: SimulateSpec, tables: dict[str, SimulatedTable]) -> None:
        self._spec = spec
        self._tables = tables
        self._next = 0

    def land(self, number: int) -> tuple[Path, ...]:
        """Write the full load (0), or the change files of a round and what was held back from the round before.

        Returns:
            Every file written, hidden ones too.

        Raises:
            MetadataError: `SIMULATE_LANDING_NOT_EMPTY`; `SIMULATE_WRONG_ROUND` unless it is the next one.
        """
        if number != self._next or number > self._spec.rounds:
            due = f"round {self._next} is due" if self._next <= self._spec.rounds else "all rounds are written"
            raise MetadataError(
                "SIMULATE_WRONG_ROUND",
                f"round {number} asked for, {due}",
                remedy="land the full load (0), then 1, 2, ...",
            )
        self._next += 1
        for run in self._tables.values():
            run.land(number)
        return tuple(path for run in self._tables.values() for path in run.folder.take_written())

    def truth(self, table: str, *, phantoms: bool = True) -> pa.Table:
        """Rows that a correct replica holds once it took in all that was written, sorted by key.

        They are the source's rows under the default policies: a dropped column keeps its values, of a tie the later row
        of the file counts, rows for the quarantine have no effect. Columns have the source's names and types; `Op`, the
        service's columns and before images are not among them. While `report()` counts pending files, the source is
        ahead of what was written. Times are UTC, in microseconds.

        Args:
            table: name without the schema.
            phantoms: also rows under old keys that were updated away without before images: a replica can't know that
                they are gone. False: only what the source holds.
        """
        return self._run(table).maker.state.rows(phantoms=phantoms)

    def metadata_row(self, table: str) -> dict[str, object]:
        """Fields of the metadata row that replicates the table, with the schema it has after the last round."""
        run = self._run(table)
        columns: SimulatedColumns = run.maker.state.columns
        for event in run.events():
            if event.round >= self._next:
                columns = evolve(columns, event.kind, event.column) or columns
        return metadata_row(f"{self._spec.schema}.{table}", columns, self._spec.delivery)

    def report(self) -> SimulateReport:
        """What was written so far."""
        tables = {name: run.report() for name, run in self._tables.items()}
        return SimulateReport(rounds=max(self._next - 1, 0), tables=tables)

    def go_through(self, steps: int) -> None:
        """Take so many steps, of which the full load is the first, as landed by an earlier process: nothing is
        written."""
        for run in self._tables.values():
            run.folder.dry = True
        for number in range(steps):
            self.land(number)
        for run in self._tables.values():
            run.folder.dry = False

    def _run(self, table: str) -> SimulatedTable:
        if table not in self._tables:
            known = f"known tables: {', '.join(self._tables)}"
            raise MetadataError("SIMULATE_INPUT_MISSING", f"no table {table!r} is simulated", remedy=known)
        return self._tables[table]


def prepare(spec: SimulateSpec, *, landed: int = 0) -> Simulator:
    """Read the input, write nothing yet.

    Args:
        landed: an earlier process with an equal spec has landed so many steps, of which the full load is the first.

    Raises:
        MetadataError: `SIMULATE_SPEC_INVALID`, `SIMULATE_INPUT_MISSING`, `SIMULATE_KEYS_INVALID`,
            `SIMULATE_COLUMN_TAKEN`, `SIMULATE_EVENT_IMPOSSIBLE`.
    """
    check(spec)
    sequencer = Sequencer()
    tables = {name: _table_run(spec, name, table, sequencer) for name, table in load_sources(spec).items()}
    _check_events(spec, tables)
    simulator = Simulator(spec, tables)
    simulator.go_through(landed)
    return simulator


def simulate(spec: SimulateSpec, *, only: int | None = None, truth: Path | None = None) -> Simulator:
    """Write the full load and every round in one go.

    Args:
        only: write this round alone (0: the full load), after earlier processes have landed those before it; None: all.
        truth: folder outside the landing root for `<table>.parquet` with the rows then; None: not written.

    Raises:
        MetadataError: as `prepare` and `Simulator.land`.
    """
    if truth and isinstance(spec.landing, Path) and truth.resolve().is_relative_to(spec.landing.resolve()):
        raise MetadataError("SIMULATE_SPEC_INVALID", f"truth folder {truth} is inside landing", remedy="choose another")
    simulator = prepare(spec, landed=only or 0)
    for number in range(spec.rounds + 1) if only is None else (only,):
        simulator.land(number)
    if truth:
        for name in spec.tables:
            write(truth / f"{name}.parquet", parquet_bytes(simulator.truth(name)))
    return simulator


def _check_events(spec: SimulateSpec, tables: dict[str, SimulatedTable]) -> None:
    """Refuse what would otherwise stop a simulation half way: an event of a table that has no fitting column then."""
    impossible = {event for event in spec.events if event.table is not None and event.table not in tables}
    for run in tables.values():
        columns = run.maker.state.columns
        for event in run.events():
            evolved = evolve(columns, event.kind, event.column)
            impossible |= {event} if evolved is None and event.table is not None else set()
            columns = evolved or columns
    for event in spec.events:
        if event in impossible:
            what = f"{event.kind} of column {event.column or 'any'!r} in round {event.round} fits nothing"
            remedy = "name a table and a column that fit"
            raise MetadataError("SIMULATE_EVENT_IMPOSSIBLE", what, where=str(event.table), remedy=remedy)


def _table_run(spec: SimulateSpec, name: str, table: pa.Table, sequencer: Sequencer) -> SimulatedTable:
    keys = spec.tables[name].keys
    state = SimulatedSourceTable(table, SimulatedColumns.of(table.schema, keys))
    values = Values.of(table, chance(spec.seed, name, "pool"), spec.made_up)
    key_maker = KeyMaker(table, keys, tricky=spec.troubles.tricky_keys) if keys else None
    packer = Packer(Namer(spec.delivery), SimulatedClock(), spec.delivery.files_per_round, spec.troubles.out_of_order)
    return SimulatedTable(
        name=name,
        spec=spec,
        maker=Maker(spec, state, values, key_maker, sequencer),
        packer=packer,
        folder=SimulatedFolder.below(spec.landing, spec.schema, name),
    )
