"""One table's simulation: full loads, rounds, and the troubles of its files; the report, with the expected content."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.simulate.dms_files import change_name, changes_table, load_name, load_table, parquet_bytes, write
from airflow_gddl.simulate.source import (
    Maker,
    RoundTime,
    SimulatedChange,
    SimulatedClock,
    unknown_operations,
    with_ties,
)
from airflow_gddl.simulate.spec import SimulateSpec
from airflow_gddl.simulate.values import Key, SimulatedColumns, chance, some
from airflow_gddl.stores import open_store


@dataclass(frozen=True, kw_only=True)
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

    keys: tuple[str, ...] = ()
    load_files: int = 0
    change_files: int = 0
    load_rows: int = 0
    change_rows: int = 0
    changes: Mapping[str, int] = field(default_factory=dict)
    troubles: Mapping[str, int] = field(default_factory=dict)
    expected_quarantined: int = 0
    expected_redelivered: int = 0
    pending_files: int = 0
    truth_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class SimulateReport:
    """Table name to its report, and the round that was written last (0: the full load)."""

    rounds: int
    tables: Mapping[str, TableReport]


@dataclass
class TableCounts:
    """Mutable counts."""

    load_files: int = 0
    change_files: int = 0
    load_rows: int = 0
    change_rows: int = 0
    quarantined: int = 0
    redelivered: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)


ROWS_PER_LOAD_FILE = 100_000
_SAMPLE = 5


@dataclass(frozen=True)
class Differences:
    """How a replica differs from the truth; counts, and a few samples of each.

    Attributes:
        missing, unexpected: keys that only the truth, or only the replica has.
        different: (key, column, value of the truth, value of the replica).
        columns: columns that the replica lacks, or whose values don't convert to the truth's type.
    """

    missing: int = 0
    unexpected: int = 0
    different: int = 0
    columns: tuple[str, ...] = ()
    samples: tuple[object, ...] = ()

    def __bool__(self) -> bool:
        """True when there is any difference."""
        return bool(self.missing or self.unexpected or self.different or self.columns)


def read_replica(path: Path | str, options: Mapping[str, str] | None = None) -> pa.Table:
    """All rows and columns of a Delta table, those behind deletion vectors left out. Needs the package `deltalake`.

    Args:
        path: local, or an `s3://` URL.
        options: storage options of `deltalake`; None: from the environment.
    """
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - needed only by demos

    builder = QueryBuilder().register(
        "replica", DeltaTable(str(path), storage_options=dict(options) if options else None)
    )
    return pa.table(builder.execute("select * from replica").read_all())


def differences(truth: pa.Table, replica: pa.Table, keys: tuple[str, ...]) -> Differences:
    """Compare by key, in the truth's columns and types; other columns of the replica don't matter.

    Args:
        keys: unique in both; empty: the tables are bags of rows, and one that differs is both missing and unexpected.
    """
    aligned, columns = _aligned(truth, replica)
    common = [name for name in truth.schema.names if name not in columns]
    if not keys or any(key in columns for key in keys):
        return _bags(truth.select(common), aligned, columns)
    order = [(key, "ascending") for key in keys]
    truth, aligned = truth.select(common).sort_by(order), aligned.sort_by(order)
    missing, unexpected, kept = _by_key(truth, aligned, keys)
    if missing or unexpected:
        truth, aligned = (_only(table, keys, kept) for table in (truth, aligned))
    different = list(_unequal(truth, aligned, keys))
    samples = (*missing[:_SAMPLE], *unexpected[:_SAMPLE], *different[:_SAMPLE])
    return Differences(len(missing), len(unexpected), len(different), columns, samples)


def _aligned(truth: pa.Table, replica: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """The replica in the truth's columns and types, and the names of those that could not be had."""
    spelt = {name.lower(): name for name in replica.schema.names}
    arrays, lacking = {}, []
    for column in truth.schema:
        values = replica[spelt[column.name.lower()]] if column.name.lower() in spelt else None
        converted = None if values is None else _converted(values, column.type)
        if converted is None:
            lacking.append(column.name)
        else:
            arrays[column.name] = converted
    return pa.table(arrays), tuple(lacking)


def _converted(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    try:
        if pt.is_timestamp(kind) and (pt.is_string(values.type) or pt.is_large_string(values.type)):
            values = values.cast(pa.timestamp("us"))
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _bags(truth: pa.Table, replica: pa.Table, columns: tuple[str, ...]) -> Differences:
    wanted, have = (Counter(map(repr, table.to_pylist())) for table in (truth, replica))
    missing, unexpected = wanted - have, have - wanted
    samples = (*list(missing)[:_SAMPLE], *list(unexpected)[:_SAMPLE])
    return Differences(missing.total(), unexpected.total(), 0, columns, samples)


def _by_key(truth: pa.Table, replica: pa.Table, keys: tuple[str, ...]) -> tuple[list[Key], list[Key], set[Key]]:
    if truth.select(list(keys)).equals(replica.select(list(keys))):
        return [], [], set()
    wanted, have = _keys(truth, keys), _keys(replica, keys)
    in_both = set(wanted) & set(have)
    # A key that the replica holds twice is unexpected once.
    twice = [key for key, again in itertools.pairwise(have) if key == again]
    return [k for k in wanted if k not in in_both], [k for k in have if k not in in_both] + twice, in_both - set(twice)


def _keys(table: pa.Table, keys: tuple[str, ...]) -> list[Key]:
    return list(zip(*(table[key].to_pylist() for key in keys), strict=True))


def _only(table: pa.Table, keys: tuple[str, ...], kept: set[Key]) -> pa.Table:
    return table.filter(pa.array([key in kept for key in _keys(table, keys)], pa.bool_()))


def _unequal(truth: pa.Table, replica: pa.Table, keys: tuple[str, ...]) -> Iterable[tuple[object, ...]]:
    for name in truth.schema.names:
        left, right = truth[name].combine_chunks(), replica[name].combine_chunks()
        if left.equals(right):
            continue
        for at in _unequal_rows(left, right):
            key = tuple(truth[k][at].as_py() for k in keys)
            yield key, name, left[at].as_py(), right[at].as_py()


def _unequal_rows(left: pa.Array, right: pa.Array) -> list[int]:
    if pt.is_nested(left.type):
        return [i for i, (a, b) in enumerate(zip(left.to_pylist(), right.to_pylist(), strict=True)) if a != b]
    same = pc.if_else(pc.and_(left.is_null(), right.is_null()), True, pc.equal(left, right).fill_null(False))
    if pt.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False))
    positions: list[int] = pc.indices_nonzero(pc.invert(same)).to_pylist()
    return positions


@dataclass(frozen=True)
class Packet:
    """A change file before it is written.

    Attributes:
        name: below the table's folder.
    """

    name: str
    rows: tuple[SimulatedChange, ...]
    columns: SimulatedColumns

    @property
    def bad(self) -> int:
        return sum(row.bad for row in self.rows)

    @property
    def data(self) -> bytes:
        return parquet_bytes(changes_table(self.columns, self.rows))

    def again(self, name: str, rng: random.Random) -> Packet:
        """The file under another name; half of the time with only some of its rows."""
        rows = self.rows
        if rng.random() < 0.5:
            picked = sorted(rng.sample(range(len(rows)), max(1, len(rows) // 2)))
            rows = tuple(rows[i] for i in picked)
        return replace(self, name=name, rows=rows)


@dataclass(frozen=True)
class Packer:
    """Packs for one table; named times never go back."""

    times: SimulatedClock
    files: int
    shuffled: bool

    def pack(
        self, changes: list[SimulatedChange], bad: list[SimulatedChange], columns: SimulatedColumns, rng: random.Random
    ) -> list[Packet]:
        """At most `files` packets, each with at least one row, named by the last commit in its share."""
        if not changes and not bad:
            return []
        size = max(1, -(-len(changes) // self.files))
        ordered = [changes[i : i + size] for i in range(0, len(changes), size)] or [[]]
        names = [change_name(self.times.after((share or bad)[-1].commit)) for share in ordered]
        mixed = self._mixed(ordered, rng)
        for row in bad:
            share = rng.choice(mixed)
            share.insert(rng.randint(0, len(share)), row)
        return [Packet(name, _flat(share), columns) for name, share in zip(names, mixed, strict=True)]

    def _mixed(self, shares: list[list[SimulatedChange]], rng: random.Random) -> list[list[SimulatedChange]]:
        if not self.shuffled:
            return [list(share) for share in shares]
        rows = [row for share in shares for row in share]
        rng.shuffle(rows)
        taken = iter(rows)
        return [[next(taken) for _ in share] for share in shares]


def _flat(share: Sequence[SimulatedChange]) -> tuple[SimulatedChange, ...]:
    """Rivals before their winners: the later row of a file wins."""
    return tuple(row for change in share for row in (change.rival, change) if row is not None)


@dataclass
class SimulatedFolder:
    """Folder of one table's files.

    Attributes:
        written: files written in the current step.
    """

    path: Path
    written: list[Path] = field(default_factory=list)

    @classmethod
    def below(cls, root: Path | str, schema: str, name: str) -> SimulatedFolder:
        """The folder of a table, below a local root or an `s3://` URL."""
        if isinstance(root, str) and is_s3(root):
            return BucketFolder(Path(schema, name), url=join(root, schema, name))
        return cls(Path(root) / schema / name)

    def put(self, name: str, data: bytes) -> None:
        self._write(name, data)
        self.written.append(self.path / name)

    def take_written(self) -> tuple[Path, ...]:
        """Files written since the last call."""
        taken = tuple(self.written)
        self.written.clear()
        return taken

    def require_empty(self) -> None:
        """Files of another simulation would invalidate the expected content.

        Raises:
            MetadataError: `SIMULATE_LANDING_NOT_EMPTY`.
        """
        if self._holds_files():
            raise MetadataError(
                "SIMULATE_LANDING_NOT_EMPTY",
                "the landing folder holds files",
                where=self.place,
                remedy="remove it or choose another landing root",
            )

    @property
    def place(self) -> str:
        return str(self.path)

    def _write(self, name: str, data: bytes) -> None:
        write(self.path / name, data)

    def _holds_files(self) -> bool:
        return self.path.exists() and any(self.path.iterdir())


@dataclass
class BucketFolder(SimulatedFolder):
    """One in an object store; `path` is then the table's alone, without a root.

    Attributes:
        url: of the folder.
    """

    url: str = ""

    @property
    def place(self) -> str:
        return self.url

    def _write(self, name: str, data: bytes) -> None:
        open_store().write(join(self.url, name), data)

    def _holds_files(self) -> bool:
        return any(True for _ in open_store().list(self.url))


@dataclass
class SimulatedTable:
    """Everything about one table while it is simulated.

    Attributes:
        pending: files held back, written in the next round.
        recent: files delivered in this round and the last, which may come again.
    """

    name: str
    spec: SimulateSpec
    maker: Maker
    packer: Packer
    folder: SimulatedFolder
    counts: TableCounts = field(default_factory=TableCounts)
    pending: list[Packet] = field(default_factory=list)
    recent: list[list[Packet]] = field(default_factory=list)

    def land(self, number: int) -> None:
        """The full load (0), or a round."""
        time = RoundTime(self.spec.start, self.spec.round_seconds, number)
        if number:
            self._round(time)
        else:
            self.folder.require_empty()
            self._load(time)

    def _round(self, time: RoundTime) -> None:
        self.recent = [*self.recent[-1:], []]
        for packet in self.pending:
            self._land(packet)
        self.pending = []
        self._deliver(self._packets(time), time.number)
        self._land_again(time)

    def report(self) -> TableReport:
        state, counts = self.maker.state, self.counts
        return TableReport(
            keys=state.columns.keys,
            load_files=counts.load_files,
            change_files=counts.change_files,
            load_rows=counts.load_rows,
            change_rows=counts.change_rows,
            changes={op: counts.changes[op] for op in "IUD"},
            troubles=dict(sorted((+counts.troubles).items())),
            expected_quarantined=counts.quarantined,
            expected_redelivered=counts.redelivered,
            pending_files=len(self.pending),
            truth_rows=state.alive,
        )

    def _rng(self, time: RoundTime, purpose: str) -> random.Random:
        return chance(self.spec.seed, self.name, time.number, purpose)

    def _load(self, time: RoundTime) -> None:
        """Write the table's rows as LOAD files; an empty table has none."""
        rows: pa.Table = self.maker.state.base
        for index, begin in enumerate(range(0, rows.num_rows, ROWS_PER_LOAD_FILE)):
            part = rows.slice(begin, ROWS_PER_LOAD_FILE)
            self.folder.put(load_name(index), parquet_bytes(load_table(part, time.begin)))
            self.counts.load_rows += part.num_rows
            self.counts.load_files += 1

    def _packets(self, time: RoundTime) -> list[Packet]:
        state, wanted = self.maker.state, self.spec.changes
        count = wanted if isinstance(wanted, int) else max(1, round(wanted * state.alive)) if wanted > 0 else 0
        changes = self.maker.changes(count, time, self._rng(time, "changes"))
        if self.maker.keys is not None:
            changes = with_ties(self.maker, changes, self.spec.troubles.ties, self._rng(time, "ties"))
        bad = unknown_operations(self.maker, time, self._rng(time, "bad"))
        self._count(changes, bad)
        return self.packer.pack(changes, bad, state.columns, self._rng(time, "packing"))

    def _count(self, changes: list[SimulatedChange], bad: list[SimulatedChange]) -> None:
        self.counts.changes.update(change.op for change in changes)
        self.counts.troubles["unknown_op"] += len(bad)
        self.counts.troubles["ties"] += sum(change.rival is not None for change in changes)

    def _deliver(self, packets: list[Packet], number: int) -> None:
        """Land the packets but those that are late. Nothing is left over at the end."""
        rng = chance(self.spec.seed, self.name, number, "held")
        self.pending = some(rng, packets, self.spec.troubles.late) if number < self.spec.rounds else []
        for packet in packets:
            if packet not in self.pending:
                self._land(packet)
        self.counts.troubles["late"] += len(self.pending)

    def _land(self, packet: Packet) -> None:
        self.folder.put(packet.name, packet.data)
        self.counts.change_files += 1
        self.counts.change_rows += len(packet.rows)
        self.counts.quarantined += packet.bad
        self.recent[-1].append(packet)

    def _land_again(self, time: RoundTime) -> None:
        rng = self._rng(time, "repeated")
        known = [packet for packets in self.recent for packet in packets]
        for packet in some(rng, known, self.spec.troubles.repeated):
            again = packet.again(change_name(self.packer.times.after(time.commit(0, 0))), rng)
            self._land(again)
            self.counts.redelivered += len(again.rows) - again.bad
            self.counts.troubles["repeated"] += 1
