"""The least that a batch of a small table costs: a measure of the machine for `small_tables.py`.

For each table it lists the log and the landing folder, writes a plan, reads the changes, keeps the newest one of each
key, and commits change table, replica and deleted keys with plain Arrow and files that are created exclusively. What a
job does beyond that is left out: checks, bad rows, re-delivery, fingerprints, claims, schemas, records.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measuring import WrongResultError
from workload import KEY, OPERATION, SEQUENCE

_WITH_BOUNDS = 3
"""Columns of which bounds are written."""


@dataclass(frozen=True)
class _Table:
    """Attributes:
    root: of its folders.
    data: name of the replica's only data file.
    """

    root: Path
    data: str


def rate(root: Path, load: Path, changes: Path, tables: int) -> float:
    """Tables a second of one core: tables by CPU seconds of this process.

    Args:
        root: an empty folder; the caller removes it.
        load: Parquet file of a full load.
        changes: Parquet file of a batch.

    Raises:
        WrongResultError: a replica has another number of rows than it must.
    """
    made = [_made(root / f"p{n:05d}", load, changes) for n in range(tables)]
    os.sync()
    began = time.process_time()
    rows = [_batch(table) for table in made]
    spent = time.process_time() - began
    net = _newest(pq.read_table(changes))
    deleted = pc.sum(pc.equal(net[OPERATION], "D")).as_py()
    known = pc.sum(pc.is_in(net[KEY], value_set=pq.read_table(load, columns=[KEY])[KEY].combine_chunks())).as_py()
    wanted = pq.read_metadata(load).num_rows + net.num_rows - known - deleted
    if set(rows) != {wanted}:
        raise WrongResultError(f"prototype: replicas of {set(rows)} rows instead of {wanted}")
    return tables / spent


def _made(root: Path, load: Path, changes: Path) -> _Table:
    """A loaded table, and its landed file."""
    for folder in ("replica", "changes", "deleted", "ledger", "landing"):
        (root / folder / "_delta_log").mkdir(parents=True)
    metadata = {"metaData": {"id": str(uuid.uuid4()), "format": {"provider": "parquet"}, "schemaString": "{}"}}
    created = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, metadata]
    rows = pq.read_table(load)
    add = _write(root / "replica", rows.drop_columns([OPERATION]) if OPERATION in rows.column_names else rows)
    _commit(root / "replica", 0, [*created, add])
    _commit(root / "changes", 0, created)
    _commit(root / "deleted", 0, created)
    os.link(changes, root / "landing" / changes.name)
    return _Table(root, str(add["add"]["path"]))


def _batch(table: _Table) -> int:
    """Rows of the replica after the landed files."""
    root = table.root
    log = sorted((root / "replica" / "_delta_log").iterdir())
    _ = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    files = sorted(path.name for path in (root / "landing").glob("*.parquet"))
    _commit(root / "ledger", 0, [{"plan": files}])
    changes = pa.concat_tables(pq.read_table(root / "landing" / name) for name in files)
    net = _newest(changes)
    _commit(root / "changes", 1, [{"txn": {"appId": "p", "version": 1}}, _write(root / "changes", changes)])
    stored = pq.read_table(root / "replica" / table.data)
    rest = stored.filter(pc.invert(pc.is_in(stored[KEY], value_set=net[KEY].combine_chunks())))
    live = net.filter(pc.not_equal(net[OPERATION], "D")).select(rest.column_names)
    replica = pa.concat_tables([rest, live])
    removed = {"remove": {"path": table.data, "dataChange": True}}
    _commit(root / "replica", 1, [{"txn": {"appId": "p", "version": 1}}, removed, _write(root / "replica", replica)])
    dead = net.filter(pc.equal(net[OPERATION], "D")).select([KEY, SEQUENCE])
    _commit(root / "deleted", 1, [_write(root / "deleted", dead)])
    _commit(root / "ledger", 1, [{"done": files, "rows": changes.num_rows}])
    return int(replica.num_rows)


def _newest(changes: pa.Table) -> pa.Table:
    """The change with the greatest sequence of each key."""
    ordered = changes.sort_by([(KEY, "ascending"), (SEQUENCE, "descending")])
    keys = ordered[KEY].to_numpy()
    return ordered.filter(pa.array(np.append(True, keys[1:] != keys[:-1])))


def _write(folder: Path, rows: pa.Table) -> dict[str, dict[str, object]]:
    """Delta's action that adds the rows as a file."""
    file = folder / f"part-{uuid.uuid4()}.parquet"
    pq.write_table(rows, file, compression="snappy")
    bounds = {name: pc.min_max(rows[name]) for name in rows.column_names[:_WITH_BOUNDS]}
    stats = {
        "numRecords": rows.num_rows,
        "minValues": {name: str(found["min"]) for name, found in bounds.items()},
        "maxValues": {name: str(found["max"]) for name, found in bounds.items()},
        "nullCount": {name: rows[name].null_count for name in bounds},
    }
    size = file.stat().st_size
    return {"add": {"path": file.name, "partitionValues": {}, "size": size, "modificationTime": int(time.time() * 1000),
                    "dataChange": True, "stats": json.dumps(stats)}}  # fmt: skip


def _commit(folder: Path, version: int, actions: Iterable[object]) -> None:
    path = folder / "_delta_log" / f"{version:020}.json"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(descriptor, "\n".join(map(json.dumps, actions)).encode())
    os.fsync(descriptor)
    os.close(descriptor)
