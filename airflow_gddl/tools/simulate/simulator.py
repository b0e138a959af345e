"""Full load and rounds of all tables as AWS DMS writes them, and the truth they lead to."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.codes import SIMULATE_INVALID
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import open_store
from airflow_gddl.tools.simulate.source import COMMIT_TIME, OPERATION, SEQUENCE, TIMESTAMP, load_sources
from airflow_gddl.tools.simulate.spec import SimulateSpec, check

Row = dict[str, object]
T = TypeVar("T")
ROWS_PER_LOAD_FILE = 100_000
_MIX = (0.60, 0.25, 0.15)
"""Shares of updates, inserts and deletes."""
_REUSED = 0.3
"""Share of inserts whose key a deleted row had."""
_HOT = 0.25
"""Share of updates and deletes of a row that changed lately."""
_LATELY = 64
_SAMPLED = 512
_MOST_COLUMNS = 3
_MOST_CHANGES = 4
"""Of a transaction, which share a commit time."""
_COMMITTING = 0.9
"""Share of a round in which transactions commit; the rest is for files written after them."""
_MILLISECOND = timedelta(milliseconds=1)


def _in_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def recent_start(now: datetime, seconds: int, rounds: int) -> datetime:
    """The start of a simulation whose last commit is just before `now`, so that a table's lag is that of its run."""
    return _in_milliseconds(now - timedelta(seconds=seconds) * (rounds + _COMMITTING))


def parquet_bytes(table: pa.Table) -> bytes:
    """Settings spelt out, and no Arrow schema inside, which the service doesn't write either."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="snappy", version="2.6", store_schema=False, row_group_size=1 << 20)
    return sink.getvalue()


class Change(NamedTuple):
    """A row of a change file; a delete has its keys alone."""

    op: str
    sequence: str
    commit: datetime
    row: Row


Together = tuple[Change, ...]
"""A change, after the one that it is tied with, if there is one: the later row of a file wins."""


@dataclass
class TableReport:
    """One table; counts are of all that was written so far.

    `change_rows = sum(changes) + ties + expected_quarantined + expected_redelivered`, once nothing is pending.

    Attributes:
        keys: the key's columns; empty: a table without a key.
        load_files, change_files: data files written.
        load_rows, change_rows: rows in them.
        changes: operation (`I`, `U`, `D`) to changes of the source.
        troubles: trouble to how often it was put in (files, rows or changes, as in `Troubles`).
        expected_quarantined: rows that belong in the quarantine, those of repeated files too.
        expected_redelivered: good rows that came before.
        pending_files: held back until the next round.
        truth_rows: rows of the truth.
    """

    keys: tuple[str, ...]
    truth_rows: int
    load_files: int = 0
    change_files: int = 0
    load_rows: int = 0
    change_rows: int = 0
    changes: dict[str, int] = field(default_factory=lambda: dict.fromkeys("IUD", 0))
    troubles: Counter[str] = field(default_factory=Counter)
    expected_quarantined: int = 0
    expected_redelivered: int = 0
    pending_files: int = 0


class SimulateReport(NamedTuple):
    """The round that was written last (0: the full load), and table name to its report."""

    rounds: int
    tables: Mapping[str, TableReport]


class Simulator:
    """Writes a simulation step by step: the full load, then rounds 1, 2, ... Equal specs write equal bytes."""

    def __init__(self, spec: SimulateSpec, tables: Mapping[str, pa.Table]) -> None:
        numbers = iter(range(1, 10**19))
        self._spec, self._next = spec, 0
        self._tables = {name: _Table(name, spec, rows, numbers) for name, rows in tables.items()}

    def land(self, number: int) -> tuple[Path, ...]:
        """Write the full load (0), or the change files of a round and what was held back from the round before.

        Returns:
            Every file written.

        Raises:
            MetadataError: `SIMULATE_INVALID`.
            ValueError: it is not the next round.
        """
        if number != self._next or number > self._spec.rounds:
            raise ValueError(f"round {number} of {self._spec.rounds} asked for, round {self._next} is due")
        self._next += 1
        return tuple(chain.from_iterable([table.land(number) for table in self._tables.values()]))

    def truth(self, table: str) -> pa.Table:
        """Rows that a correct replica holds once it took in all that was written, sorted by key.

        They are the source's rows: of a tie the later row of the file counts, rows for the quarantine have no effect.
        Columns have the source's names and types; those that the service adds are not among them. While `report()`
        counts pending files, the source is ahead of what was written. Times are UTC, in microseconds.
        """
        return self._tables[table].truth()

    def report(self) -> SimulateReport:
        """What was written so far."""
        return SimulateReport(max(self._next - 1, 0), {name: table.report for name, table in self._tables.items()})


def prepare(spec: SimulateSpec) -> Simulator:
    """Read the input, write nothing yet.

    Raises:
        MetadataError: `SIMULATE_INVALID`,
            `SIMULATE_INVALID`.
    """
    check(spec)
    return Simulator(spec, load_sources(spec))


def simulate(spec: SimulateSpec, *, truth: Path | None = None) -> Simulator:
    """Write the full load and every round in one go.

    Args:
        truth: folder outside the landing root for `<table>.parquet` with the rows then; None: not written.

    Raises:
        MetadataError: as `prepare` and `Simulator.land`.
    """
    if truth and isinstance(spec.landing, Path) and truth.resolve().is_relative_to(spec.landing.resolve()):
        raise MetadataError(SIMULATE_INVALID, f"truth folder {truth} is inside landing", remedy="choose another")
    simulator = prepare(spec)
    for number in range(spec.rounds + 1):
        simulator.land(number)
    if truth:
        for name in spec.tables:
            path = str(truth.absolute() / f"{name}.parquet")
            open_store().write(path, parquet_bytes(simulator.truth(name)))
    return simulator


class _File(NamedTuple):
    name: str
    rows: tuple[Change, ...]


class _Table:
    """A table of the source, what happens to it, and its files."""

    def __init__(self, name: str, spec: SimulateSpec, base: pa.Table, numbers: Iterator[int]) -> None:
        self.spec, self.name, self.base, self.numbers = spec, name, base, numbers
        self.keys = spec.tables[name].keys
        self.free = [column for column in base.schema.names if column not in self.keys]
        self.report = TableReport(self.keys, base.num_rows)
        self._changed: dict[int, Row | None] = {}  # rows by number, those of the input first; null: deleted
        self._next_row = base.num_rows
        self._lately: list[int] = []
        self._unused_keys: list[Row] = []
        picked = sorted(self._chance(0, "values").sample(range(base.num_rows), min(_SAMPLED, base.num_rows)))
        self._values = base.take(pa.array(picked, pa.int64())).to_pydict()
        self._varying = [name for name in self.free if any(v != self._values[name][0] for v in self._values[name])]
        self._named_at = spec.start
        self._pending: list[_File] = []
        self._delivered: list[list[_File]] = [[], []]

    def _chance(self, number: int, purpose: str) -> random.Random:
        """A generator that depends on nothing but these: what one trouble draws changes no other."""
        return random.Random(f"{self.spec.seed}/{self.name}/{number}/{purpose}")  # noqa: S311 - no secrets

    @property
    def _folder(self) -> str:
        root = self.spec.landing
        return join(str(root.absolute()) if isinstance(root, Path) else root, self.spec.schema, self.name)

    # The source

    def truth(self) -> pa.Table:
        kept = self.base.take(pa.array([i for i in range(self.base.num_rows) if i not in self._changed], pa.int64()))
        rows = [row for _, row in sorted(self._changed.items()) if row is not None]
        table = pa.concat_tables([kept, pa.Table.from_pylist(rows, self.base.schema)]).combine_chunks()
        return table.sort_by([(key, "ascending") for key in self.keys]) if self.keys else table

    def _row(self, number: int) -> Row | None:
        if number not in self._changed:
            self._changed[number] = self.base.slice(number, 1).to_pylist()[0]
        return self._changed[number]

    def _pick(self, rng: random.Random) -> tuple[int, Row] | None:
        """A living row and its number; null where there is none."""
        while self.report.truth_rows:
            hot = self._lately and rng.random() < _HOT
            number = rng.choice(self._lately) if hot else rng.randrange(self._next_row)
            if (row := self._row(number)) is not None:
                return number, row
        return None

    def _put(self, number: int, row: Row | None, more: int = 0) -> None:
        self._changed[number] = row
        self._lately = [*self._lately[1 - _LATELY :], number]
        self.report.truth_rows += more

    def _other(self, rng: random.Random, row: Row, columns: Sequence[str]) -> Row:
        """The row with other values in these columns: those of other rows, or null."""
        made = dict(row)
        for column in columns:
            drawn = rng.choice(self._values[column]) if self._values[column] else None
            made[column] = None if drawn == row[column] else drawn
        return made

    def _changes(self, number: int) -> list[Together]:
        wanted, rng = self.spec.changes, self._chance(number, "changes")
        count = wanted if isinstance(wanted, int) else max(1, round(wanted * self.report.truth_rows)) if wanted else 0
        sizes: list[int] = []
        while (left := count - sum(sizes)) > 0:
            sizes.append(min(left, rng.randint(1, _MOST_CHANGES)))
        commits = (self._commit(number, at, len(sizes)) for at, size in enumerate(sizes) for _ in range(size))
        return [(change,) for commit in commits if (change := self._change(commit, rng)) is not None]

    def _commit(self, number: int, at: int, count: int) -> datetime:
        """Of a round's transaction `at` of `count`: evenly over the first part of the round."""
        passed = number + _COMMITTING * (at + 1) / (count + 1)
        return self.spec.start + timedelta(seconds=self.spec.round_seconds) * passed

    def _change(self, commit: datetime, rng: random.Random) -> Change | None:
        """A change of the source; null where no key is left for an insert."""
        op = rng.choices("UID", _MIX)[0]
        picked = self._pick(rng) if self.keys and op != "I" else None
        if picked is None:
            row = self._inserted(rng)
            if row is None:
                return None
            op, number, self._next_row = "I", self._next_row, self._next_row + 1
            self._put(number, row, 1)
        elif op == "D":
            number, old = picked
            row = dict.fromkeys(self.base.schema.names) | self._key(old)
            self._unused_keys.append(self._key(old))
            self._put(number, None, -1)
        else:
            columns = self._varying or self.free
            row = self._other(rng, picked[1], rng.sample(columns, min(len(columns), rng.randint(1, _MOST_COLUMNS))))
            self._put(picked[0], row)
        self.report.changes[op] += 1
        return Change(op, self._sequence(commit), commit, row)

    def _key(self, row: Row) -> Row:
        return {name: row[name] for name in self.keys}

    def _inserted(self, rng: random.Random) -> Row | None:
        row = {column: rng.choice(self._values[column] or [None]) for column in self.free}
        if not self.keys:
            return row
        key = None
        if (self._unused_keys and rng.random() < _REUSED) or (key := self._new_key(rng)) is None:
            key = self._unused_keys.pop(rng.randrange(len(self._unused_keys))) if self._unused_keys else None
        return None if key is None else {**row, **key}

    def _new_key(self, rng: random.Random) -> Row | None:
        """A key with a number or text that no row had; null where the key's types have neither."""
        kinds = {key: self.base.schema.field(key).type for key in reversed(self.keys)}
        column = next((c for fits in (pt.is_integer, pt.is_string) for c, kind in kinds.items() if fits(kind)), None)
        picked = self._pick(rng)
        if column is None or picked is None:
            return None
        if pt.is_string(kinds[column]):
            return {**self._key(picked[1]), column: f"K{rng.randrange(36**6):06d}{self._next_row}"}
        value = (pc.max(self.base[column]).as_py() or 0) + self._next_row - self.base.num_rows + 1
        return {**self._key(picked[1]), column: value} if value < 2 ** (kinds[column].bit_width - 1) else None

    def _sequence(self, moment: datetime) -> str:
        """35 digits, as `AR_H_CHANGE_SEQ`: the time to the hundredth of a second, then a counter; sorts as text."""
        return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 10_000:02d}{next(self.numbers):019d}"

    # Its files

    def land(self, number: int) -> list[Path]:
        """The full load (0), or a round: what was late, what is new, and what comes again."""
        if not number:
            return list(self._load())
        late, self._pending = self._pending, []
        self._delivered = [self._delivered[-1], []]
        files, troubles = self._files(number), self.spec.troubles
        if number < self.spec.rounds:
            self._pending = _some(self._chance(number, "late"), files, troubles.late)
        self.report.pending_files = len(self._pending)
        self.report.troubles["late"] += len(self._pending)
        written = [self._write(file) for file in (*late, *(file for file in files if file not in self._pending))]
        rng = self._chance(number, "repeated")
        for file in _some(rng, [*chain(*self._delivered)], troubles.repeated):
            rows = file.rows if rng.random() < 0.5 else file.rows[: max(1, len(file.rows) // 2)]
            written.append(self._write(_File(self._name(self._commit(number, 0, 1)), rows)))
            self.report.expected_redelivered += sum(row.op != "X" for row in rows)
            self.report.troubles["repeated"] += 1
        return written

    def _load(self) -> Iterator[Path]:
        """
        Raises:
            MetadataError: `SIMULATE_INVALID`: files of another simulation would invalidate the truth.
        """
        if next(open_store().list(self._folder), None) is not None:
            remedy = "remove it or choose another landing root"
            raise MetadataError(SIMULATE_INVALID, "the landing folder holds files", where=self._folder, remedy=remedy)
        for number, begin in enumerate(range(0, self.base.num_rows, ROWS_PER_LOAD_FILE), 1):
            rows = self.base.slice(begin, ROWS_PER_LOAD_FILE)
            rows = rows.append_column(SEQUENCE, pa.nulls(rows.num_rows, pa.string()))
            rows = rows.append_column(COMMIT_TIME, pa.repeat(pa.scalar(self.spec.start, TIMESTAMP), rows.num_rows))
            self.report.load_files += 1
            self.report.load_rows += rows.num_rows
            yield self._put_file(f"LOAD{number:08X}.parquet", rows)

    def _files(self, number: int) -> list[_File]:
        """Of a round: changes with those they are tied with, and rows for the quarantine."""
        troubles, rng = self.spec.troubles, self._chance(number, "files")
        changes = self._changes(number)
        fit = [at for at, (change,) in enumerate(changes) if change.op == "U" and self.free]
        for at in rng.sample(fit, min(troubles.ties, len(fit))):
            (change,) = changes[at]
            changes[at] = (change._replace(row=self._other(rng, change.row, [rng.choice(self.free)])), change)
            self.report.troubles["ties"] += 1
        size = max(1, -(-len(changes) // self.spec.files_per_round))
        last = [share[-1][-1].commit for share in _parts(changes, size)]
        if troubles.out_of_order:
            rng.shuffle(changes)
        shares = [[row for together in share for row in together] for share in _parts(changes, size)]
        for _ in range(troubles.unknown_op):
            picked, commit = self._pick(rng), self._commit(number, 1, 1)
            if picked is not None:
                bad = Change("X", self._sequence(commit), commit, picked[1])
                if not shares:
                    shares, last = [[]], [commit]
                rng.choice(shares).append(bad)
                self.report.troubles["unknown_op"] += 1
        return [_File(self._name(moment), tuple(share)) for moment, share in zip(last, shares, strict=True)]

    def _name(self, moment: datetime) -> str:
        """Later than all before."""
        self._named_at = max(_in_milliseconds(moment), self._named_at) + _MILLISECOND
        return f"{self._named_at:%Y%m%d-%H%M%S}{self._named_at.microsecond // 1000:03d}.parquet"

    def _write(self, file: _File) -> Path:
        made = {OPERATION: pa.array([change.op for change in file.rows], pa.string())}
        rows = pa.Table.from_pylist([change.row for change in file.rows], self.base.schema)
        made |= dict(zip(rows.schema.names, rows.columns, strict=True))
        made[SEQUENCE] = pa.array([change.sequence for change in file.rows], pa.string())
        made[COMMIT_TIME] = pa.array([change.commit for change in file.rows], TIMESTAMP)
        self.report.change_files += 1
        self.report.change_rows += len(file.rows)
        self.report.expected_quarantined += sum(change.op == "X" for change in file.rows)
        self._delivered[-1].append(file)
        return self._put_file(file.name, pa.table(made))

    def _put_file(self, name: str, rows: pa.Table) -> Path:
        path = join(self._folder, name)
        open_store().write(path, parquet_bytes(rows))
        return Path(path)


def _parts(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _some(rng: random.Random, items: Sequence[T], share: float) -> list[T]:
    """About `share` of the items, in their order; at least one when the share is above 0 and there is any."""
    count = min(len(items), max(1, round(share * len(items)))) if share else 0
    return [items[at] for at in sorted(rng.sample(range(len(items)), count))]
