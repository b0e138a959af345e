"""What the programs here work on: a full load and change files as AWS DMS writes them, equal for equal seeds.

Keys of the full load are even; inserts take odd ones at random between them, updates and deletes even ones at random.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TABLE, KEY, SEQUENCE, OPERATION = "bench.orders", "id", "transact_seq", "Op"
SCHEMA = pa.schema(
    [
        (KEY, pa.int64()),
        ("customer", pa.string()),
        ("status", pa.string()),
        ("quantity", pa.int32()),
        ("amount", pa.decimal128(12, 2)),
        ("price", pa.float64()),
        ("active", pa.bool_()),
        ("updated_at", pa.timestamp("us", tz="UTC")),
        ("note", pa.string()),
        (SEQUENCE, pa.string()),
    ]
)
_MIX: Mapping[str, float] = {"U": 0.60, "I": 0.25, "D": 0.15}
_STATUSES = ("open", "paid", "packed", "shipped", "returned")
_ROWS_PER_LOAD_FILE, _ROWS_PER_GROUP = 1_000_000, 100_000
_SEQUENCE_DIGITS = 35
_START_MICROS, _YEAR_MICROS = 1_704_067_200_000_000, 31_536_000_000_000


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A table of `rows` rows, then `files` files of `changes_per_file` changes: by default 60 % U, 25 % I, 15 % D.

    Attributes:
        recent: numbers of files whose changes are of the newest hundredth of the rows, or insert after them.
    """

    rows: int
    files: int
    changes_per_file: int
    seed: int
    mix: Mapping[str, float] = field(default_factory=lambda: _MIX)
    recent: frozenset[int] = frozenset()

    @property
    def changes(self) -> int:
        return self.files * self.changes_per_file


@dataclass(frozen=True)
class Folders:
    """Where one workload's files and tables are, below a root of its own."""

    root: Path

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @property
    def landed(self) -> Path:
        """The table's own folder in the landing area."""
        return self.landing.joinpath(*TABLE.split("."))

    @property
    def waiting(self) -> Path:
        """Change files that have not landed yet."""
        return self.root / "waiting"

    def lake(self, side: str) -> Path:
        return self.root / side

    def replica(self, side: str) -> Path:
        return self.lake(side).joinpath(*TABLE.split("."))

    def exported(self, side: str) -> Path:
        """The replica after the timed part, as plain parquet."""
        return self.root / f"{side}-exported"

    def load_files(self) -> list[Path]:
        return sorted(self.landed.glob("LOAD*.parquet"))

    def change_files(self) -> list[Path]:
        return sorted(self.waiting.glob("*.parquet"))

    def deliver(self) -> None:
        """Let the change files land."""
        for file in self.change_files():
            (self.landed / file.name).hardlink_to(file)


def write(work: Workload, folders: Folders) -> None:
    """Write the full load into the landing folder and the change files where they wait."""
    folders.landed.mkdir(parents=True)
    folders.waiting.mkdir()
    for number, start in enumerate(range(0, work.rows, _ROWS_PER_LOAD_FILE), start=1):
        count = min(_ROWS_PER_LOAD_FILE, work.rows - start)
        save(load_rows(start, count, (work.seed, "load", number)), folders.landed / f"LOAD{number:08X}.parquet")
    fresh = _shuffled(work.rows, (work.seed, "fresh"))
    for number in range(work.files):
        save(_changes(work, number, fresh), folders.waiting / f"20240101-{number:06d}000.parquet")


def load_rows(start: int, count: int, salt: tuple[object, ...]) -> pa.Table:
    """Rows of a full load, with even keys from twice `start` on."""
    ids = pc.multiply(pa.array(range(start, start + count), pa.int64()), 2)
    return _rows(ids, pa.repeat(0, count), salt)


def _changes(work: Workload, number: int, fresh: pa.Array) -> pa.Table:
    """One change file: operations, then ids and values, shuffled alike; sequences grow with the row."""
    count, salt = work.changes_per_file, (work.seed, "change", number)
    inserts, deletes = (round(count * work.mix[op]) for op in ("I", "D"))
    new = pc.add(pc.multiply(fresh.slice(number * inserts, inserts), 2), 1)
    known = pc.multiply(_whole(count - inserts, work.rows, (*salt, "keys")), 2)
    if number in work.recent:
        newest = max(1, work.rows // 100)
        new = pa.array(range(2 * work.rows + 1, 2 * work.rows + 1 + inserts), pa.int64())
        old = _whole(count - inserts, newest, (*salt, "keys"))
        known = pc.multiply(pc.add(old, work.rows - newest), 2)
    ops = ["U"] * (count - inserts - deletes) + ["D"] * deletes + ["I"] * inserts
    order = _shuffled(count, (*salt, "order"))
    ids = pa.concat_arrays([known, new.cast(pa.int64())]).take(order)
    first = 1 + number * count
    rows = _rows(ids, pa.array(range(first, first + count), pa.int64()), salt)
    return rows.add_column(0, OPERATION, pa.array(ops).take(order))


def _rows(ids: pa.Array, sequence: pa.Array, salt: tuple[object, ...]) -> pa.Table:
    count = len(ids)

    def whole(below: int, what: str) -> pa.Array:
        return _whole(count, below, (*salt, what))

    digits = [whole(10**12, f"note {i}").cast(pa.string()) for i in range(3)]
    note = pc.binary_join_element_wise(*digits, " ")
    columns = {
        KEY: ids,
        "customer": pc.binary_join_element_wise("customer", whole(1_000_000, "customer").cast(pa.string()), "-"),
        "status": pa.array(_STATUSES).take(whole(len(_STATUSES), "status")),
        "quantity": whole(100, "quantity").cast(pa.int32()),
        "amount": pc.divide(whole(10**8, "amount").cast(pa.float64()), 100.0).cast(pa.decimal128(12, 2)),
        "price": _uniform(count, (*salt, "price")),
        "active": pc.less(_uniform(count, (*salt, "active")), 0.8),
        "updated_at": pc.add(whole(_YEAR_MICROS, "updated_at"), _START_MICROS).cast(pa.timestamp("us", tz="UTC")),
        "note": pc.if_else(pc.less(_uniform(count, (*salt, "no note")), 0.05), pa.scalar(None, pa.string()), note),
        SEQUENCE: pc.utf8_lpad(sequence.cast(pa.string()), _SEQUENCE_DIGITS, "0"),
    }
    return pa.table(columns, schema=SCHEMA)


def save(rows: pa.Table, path: Path) -> None:
    """Write a file, with a time of a minute ago: a job leaves files alone that may still be written."""
    pq.write_table(rows, path, row_group_size=_ROWS_PER_GROUP)
    written = path.stat().st_mtime - 60
    os.utime(path, (written, written))


def _uniform(count: int, salt: tuple[object, ...]) -> pa.Array:
    return pc.random(count, initializer=zlib.crc32(repr(salt).encode()))


def _whole(count: int, below: int, salt: tuple[object, ...]) -> pa.Array:
    """Whole numbers from 0 to `below`, exclusive."""
    return pc.floor(pc.multiply(_uniform(count, salt), float(below))).cast(pa.int64())


def _shuffled(count: int, salt: tuple[object, ...]) -> pa.Array:
    """0 to `count`, exclusive, each once, in a random order."""
    return pc.array_sort_indices(_uniform(count, salt))
