"""Full load and rounds of all tables, and the truth they lead to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.devtools.simulate.chance import chance
from airflow_gddl.devtools.simulate.changes import Maker
from airflow_gddl.devtools.simulate.clock import Sequencer, SimulatedClock
from airflow_gddl.devtools.simulate.columns import SimulatedColumns, evolve
from airflow_gddl.devtools.simulate.files import Namer, parquet_bytes, write
from airflow_gddl.devtools.simulate.keys import KeyMaker
from airflow_gddl.devtools.simulate.landing import SimulatedFolder
from airflow_gddl.devtools.simulate.metadata import metadata_row
from airflow_gddl.devtools.simulate.packing import Packer
from airflow_gddl.devtools.simulate.report import SimulateReport
from airflow_gddl.devtools.simulate.source import load_sources
from airflow_gddl.devtools.simulate.spec import SimulateSpec, check
from airflow_gddl.devtools.simulate.state import SimulatedSourceTable
from airflow_gddl.devtools.simulate.table import SimulatedTable
from airflow_gddl.devtools.simulate.values import Values


class Simulator:
    """Writes a simulation step by step: the full load, then rounds 1, 2, ...

    Equal specs write equal bytes, whether in one process or, with `landed`, in several.
    """

    def __init__(self, spec: SimulateSpec, tables: dict[str, SimulatedTable]) -> None:
        self._spec = spec
        self._tables = tables
        self._next = 0

    def land_full_load(self) -> tuple[Path, ...]:
        """Write the LOAD files of all tables; answers every file written, hidden ones too.

        Raises:
            MetadataError: `SIMULATE_LANDING_NOT_EMPTY`, `SIMULATE_WRONG_ROUND`.
        """
        self._step(0)
        for run in self._tables.values():
            run.full_load()
        return self._written()

    def land_round(self, number: int) -> tuple[Path, ...]:
        """Write the change files of round `number`, and what was held back from the round before.

        Raises:
            MetadataError: `SIMULATE_WRONG_ROUND` unless it is the next one.
        """
        self._step(number or -1)
        for run in self._tables.values():
            run.round(number)
        return self._written()

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

    def write_truth(self, folder: Path) -> None:
        """Write each table's truth to `folder/<table>.parquet`.

        Raises:
            MetadataError: `SIMULATE_SPEC_INVALID` for a folder inside the landing root.
        """
        _require_outside(folder, self._spec.landing)
        for name in self._tables:
            write(folder / f"{name}.parquet", parquet_bytes(self.truth(name)))

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

    def go_through(self, rounds: int) -> None:
        """Take the full load and so many rounds as landed by an earlier process: nothing is written."""
        for run in self._tables.values():
            run.folder.dry = True
        self.land_full_load()
        for number in range(1, rounds + 1):
            self.land_round(number)
        for run in self._tables.values():
            run.folder.dry = False

    def _step(self, number: int) -> None:
        if number != self._next or number > self._spec.rounds:
            due = f"round {self._next} is due" if self._next <= self._spec.rounds else "all rounds are written"
            raise MetadataError(
                "SIMULATE_WRONG_ROUND",
                f"round {number} asked for, {due}",
                remedy="land the full load (0), then 1, 2, ...",
            )
        self._next += 1

    def _run(self, table: str) -> SimulatedTable:
        if table not in self._tables:
            known = f"known tables: {', '.join(self._tables)}"
            raise MetadataError("SIMULATE_INPUT_MISSING", f"no table {table!r} is simulated", remedy=known)
        return self._tables[table]

    def _written(self) -> tuple[Path, ...]:
        return tuple(path for run in self._tables.values() for path in run.folder.take_written())


def prepare(spec: SimulateSpec, *, landed: int | None = None) -> Simulator:
    """Read the input, write nothing yet.

    Args:
        landed: an earlier process with an equal spec has landed the full load and so many rounds; null: nothing yet.

    Raises:
        MetadataError: `SIMULATE_SPEC_INVALID`, `SIMULATE_INPUT_MISSING`, `SIMULATE_KEYS_INVALID`,
            `SIMULATE_COLUMN_TAKEN`, `SIMULATE_EVENT_IMPOSSIBLE`.
    """
    check(spec)
    sequencer = Sequencer()
    tables = {name: _table_run(spec, name, table, sequencer) for name, table in load_sources(spec).items()}
    _check_events(spec, tables)
    simulator = Simulator(spec, tables)
    if landed is not None:
        simulator.go_through(landed)
    return simulator


def simulate(spec: SimulateSpec, *, truth: Path | None = None) -> SimulateReport:
    """Write the full load and every round in one go.

    Args:
        truth: folder outside the landing root for `<table>.parquet` with the final rows; null: not written.

    Raises:
        MetadataError: as `prepare`, and `SIMULATE_LANDING_NOT_EMPTY`.
    """
    if truth is not None:
        _require_outside(truth, spec.landing)
    simulator = prepare(spec)
    simulator.land_full_load()
    for number in range(1, spec.rounds + 1):
        simulator.land_round(number)
    if truth is not None:
        simulator.write_truth(truth)
    return simulator.report()


def _require_outside(truth: Path, landing: Path | str) -> None:
    if isinstance(landing, Path) and truth.resolve().is_relative_to(landing.resolve()):
        raise MetadataError("SIMULATE_SPEC_INVALID", f"truth folder {truth} is inside landing", remedy="choose another")


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
            remedy = "name a table and a column that fit, or set typed_columns"
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
