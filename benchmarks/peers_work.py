"""The two workloads of `peers.py`: changes in order, and changes as a CDC service delivers them on a bad day."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import workload
from workload import KEY, OPERATION, SCHEMA, SEQUENCE, Folders, Workload

_NEXT_OF_KEY = {"I": "U", "U": "D", "D": "I"}
"""What the second change of a key within a transaction is, by the first one."""
_ONE_IN = 20
_COPY = "20240101-000009000.parquet"


@dataclass(frozen=True, kw_only=True)
class Work:
    """A workload and how its files arrive.

    Attributes:
        batches: names of the files of each batch, in the order in which they arrive.
    """

    name: str
    base: Workload
    batches: tuple[tuple[str, ...], ...]

    @property
    def changes(self) -> int:
        """Rows in all files that arrive."""
        return sum(map(len, self.batches)) * self.base.changes_per_file


def plain(rows: int, changes: int, seed: int) -> Work:
    """Six files in order, two a batch. Keys are at random, so many have several changes."""
    base = Workload(rows=rows, files=6, changes_per_file=changes, seed=seed)
    names = [_name(n) for n in range(base.files)]
    return Work(name="plain", base=base, batches=tuple(zip(names[::2], names[1::2], strict=True)))


def hard(rows: int, changes: int, seed: int) -> Work:
    """Four files: the second before the first, the fourth before the third, the first one again under another name.

    A twentieth of the rows are second changes of the key before them in the same transaction, with its sequence. As
    many deletes in each file that comes early are of rows that the file before it inserts, which comes late.
    """
    base = Workload(rows=rows, files=4, changes_per_file=changes, seed=seed)
    first, second, third, fourth = (_name(n) for n in range(base.files))
    return Work(name="hard", base=base, batches=((second,), (first,), (fourth, _COPY), (third,)))


def write(work: Work, folders: Folders) -> None:
    """Write the full load into the landing folder and the change files where they wait."""
    workload.write(work.base, folders)
    if work.name != "hard":
        return
    files = folders.change_files()
    tables = [pq.read_table(f) for f in files]
    for earlier, later in ((0, 1), (2, 3)):
        tables[later] = _delete_inserts_of(tables[earlier], tables[later])
    for file, table in zip(files, tables, strict=True):
        workload.save(_with_ties(table), file)
    (folders.waiting / _COPY).hardlink_to(files[0])


def _delete_inserts_of(earlier: pa.Table, later: pa.Table) -> pa.Table:
    """`later`, where deletes are of rows that `earlier` inserts."""
    pairs = zip(earlier[KEY].to_pylist(), earlier[OPERATION].to_pylist(), strict=True)
    inserted = [key for key, op in pairs if op == "I"]
    operations, keys = later[OPERATION].to_pylist(), later[KEY].to_pylist()
    deletes = [row for row, op in enumerate(operations) if op == "D"][: len(keys) // _ONE_IN]
    for row, key in zip(deletes, inserted, strict=False):
        keys[row] = key
    return _replaced(later, {KEY: keys})


def _with_ties(rows: pa.Table) -> pa.Table:
    """Each twentieth row becomes another change of the row before it, with the same sequence."""
    keys, operations, sequences = (rows[c].to_pylist() for c in (KEY, OPERATION, SEQUENCE))
    for i in range(1, len(keys), _ONE_IN):
        keys[i], sequences[i], operations[i] = keys[i - 1], sequences[i - 1], _NEXT_OF_KEY[operations[i - 1]]
    return _replaced(rows, {KEY: keys, OPERATION: operations, SEQUENCE: sequences})


def _replaced(rows: pa.Table, columns: dict[str, list[object]]) -> pa.Table:
    for name, values in columns.items():
        kind = pa.string() if name == OPERATION else SCHEMA.field(name).type
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values, kind))
    return rows


def _name(number: int) -> str:
    return f"20240101-{number:06d}000.parquet"
