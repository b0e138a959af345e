"""Full load and rounds of all tables, and the truth they lead to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.simulate.dms_files import parquet_bytes, write
from airflow_gddl.simulate.source import Maker, Sequencer, SimulatedClock, SimulatedSourceTable, load_sources
from airflow_gddl.simulate.spec import SimulateSpec, check
from airflow_gddl.simulate.table import Packer, SimulatedFolder, SimulatedTable, SimulateReport
from airflow_gddl.simulate.values import KeyMaker, SimulatedColumns, Values, chance


class Simulator:
    """Writes a simulation step by step: the full load, then rounds 1, 2, ... Equal specs write equal bytes."""

    def __init__(self, spec: SimulateSpec, tables: dict[str, SimulatedTable]) -> None:
        self._spec = spec
        self._tables = tables
        self._next = 0

    def land(self, number: int) -> tuple[Path, ...]:
        """Write the full load (0), or the change files of a round and what was held back from the round before.

        Returns:
            Every file written.

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

    def truth(self, table: str) -> pa.Table:
        """Rows that a correct replica holds once it took in all that was written, sorted by key.

        They are the source's rows: of a tie the later row of the file counts, rows for the quarantine have no effect.
        Columns have the source's names and types; those that the service adds are not among them. While `report()`
        counts pending files, the source is ahead of what was written. Times are UTC, in microseconds.

        Args:
            table: name without the schema.
        """
        if table not in self._tables:
            known = f"known tables: {', '.join(self._tables)}"
            raise MetadataError("SIMULATE_INPUT_MISSING", f"no table {table!r} is simulated", remedy=known)
        return self._tables[table].maker.state.rows()

    def report(self) -> SimulateReport:
        """What was written so far."""
        tables = {name: run.report() for name, run in self._tables.items()}
        return SimulateReport(rounds=max(self._next - 1, 0), tables=tables)


def prepare(spec: SimulateSpec) -> Simulator:
    """Read the input, write nothing yet.

    Raises:
        MetadataError: `SIMULATE_SPEC_INVALID`, `SIMULATE_INPUT_MISSING`, `SIMULATE_KEYS_INVALID`,
            `SIMULATE_COLUMN_TAKEN`.
    """
    check(spec)
    sequencer = Sequencer()
    tables = {name: _table_run(spec, name, table, sequencer) for name, table in load_sources(spec).items()}
    return Simulator(spec, tables)


def simulate(spec: SimulateSpec, *, truth: Path | None = None) -> Simulator:
    """Write the full load and every round in one go.

    Args:
        truth: folder outside the landing root for `<table>.parquet` with the rows then; None: not written.

    Raises:
        MetadataError: as `prepare` and `Simulator.land`.
    """
    if truth and isinstance(spec.landing, Path) and truth.resolve().is_relative_to(spec.landing.resolve()):
        raise MetadataError("SIMULATE_SPEC_INVALID", f"truth folder {truth} is inside landing", remedy="choose another")
    simulator = prepare(spec)
    for number in range(spec.rounds + 1):
        simulator.land(number)
    if truth:
        for name in spec.tables:
            write(truth / f"{name}.parquet", parquet_bytes(simulator.truth(name)))
    return simulator


def _table_run(spec: SimulateSpec, name: str, table: pa.Table, sequencer: Sequencer) -> SimulatedTable:
    keys = spec.tables[name].keys
    state = SimulatedSourceTable(table, SimulatedColumns(table.schema, keys))
    values = Values.of(table, chance(spec.seed, name, "pool"), spec.made_up)
    key_maker = KeyMaker(table, keys) if keys else None
    packer = Packer(SimulatedClock(), spec.files_per_round, spec.troubles.out_of_order)
    return SimulatedTable(
        name=name,
        spec=spec,
        maker=Maker(spec, state, values, key_maker, sequencer),
        packer=packer,
        folder=SimulatedFolder.below(spec.landing, spec.schema, name),
    )
