"""Tools of `peers.py` that need no Spark: `DeltaTable.merge` of the package deltalake, and the upsert of deltalite."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from peers_tool import PeerOrder, run_tool
from workload import KEY, OPERATION, SCHEMA, SEQUENCE, Folders

DELETED, ROW = "deleted", "row_in_file"
NEWER = f"s.{SEQUENCE} > t.{SEQUENCE}"


class DeltaLakeMerge:
    """`DeltaTable.merge` of the package deltalake, after pyarrow has left the last change of each key."""

    def __init__(self, order: PeerOrder) -> None:
        self._name = order.tool
        self.versions = versions_of("deltalake", "pyarrow")

    def start(self, folders: Folders) -> None:
        pass

    def load(self, folders: Folders) -> None:
        for file in folders.load_files():
            rows = pq.read_table(file)
            rows = rows.append_column(DELETED, pa.repeat(False, len(rows)))
            write_deltalake(str(folders.replica(self._name)), rows, mode="append")

    def apply(self, folders: Folders, files: Sequence[Path]) -> None:
        net = _net_rows(files)
        low, high = key_range(files)
        values = {c: f"s.{c}" for c in (*SCHEMA.names, DELETED)}
        merge = DeltaTable(str(folders.replica(self._name))).merge(
            net,
            f"s.{KEY} = t.{KEY} AND t.{KEY} BETWEEN {low} AND {high}",
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
        )
        merge.when_matched_update(values, predicate=NEWER).when_not_matched_insert(values).execute()

    def export(self, folders: Folders) -> None:
        rows = DeltaTable(str(folders.replica(self._name))).to_pyarrow_table(columns=[*SCHEMA.names, DELETED])
        folders.exported(self._name).mkdir()
        live = rows.filter(pc.invert(rows[DELETED])).drop_columns(DELETED)
        pq.write_table(live, folders.exported(self._name) / "rows.parquet")


class DeltaLiteUpsert(DeltaLakeMerge):
    """The upsert of the package deltalite for the same changes; it compares no sequences: what arrives last wins."""

    def __init__(self, order: PeerOrder) -> None:
        self._name = order.tool
        self.versions = versions_of("deltalite", "deltalake", "pyarrow")

    def apply(self, folders: Folders, files: Sequence[Path]) -> None:
        deltalite = importlib.import_module("deltalite")  # of another Python than the others'
        table = deltalite.DeltaLiteTable.open(str(folders.replica(self._name)))
        print(table.upsert(_net_rows(files), primary_keys=[KEY]))


def _net_rows(files: Sequence[Path]) -> pa.Table:
    """The last change of each key in a batch: the greatest sequence, among equal ones the last file and row."""
    rows = pa.concat_tables(pq.read_table(f) for f in files)
    places = pa.array(range(len(rows)), pa.int64())
    order = pc.sort_indices(pa.table([rows[KEY], rows[SEQUENCE], places], names=[KEY, SEQUENCE, ROW]),
                            sort_keys=[(c, "ascending") for c in (KEY, SEQUENCE, ROW)])  # fmt: skip
    keys = rows[KEY].take(order).combine_chunks()
    last = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    net = rows.take(order.filter(pa.concat_arrays([last, pa.array([True])])))
    return net.append_column(DELETED, pc.equal(net[OPERATION], "D")).drop_columns(OPERATION)


def key_range(files: Sequence[Path]) -> tuple[int, int]:
    """Least and greatest key of a batch, by which files of the table can be left out."""
    ends = [pc.min_max(pq.read_table(f, columns=[KEY])[KEY]).as_py() for f in files]
    return min(e["min"] for e in ends), max(e["max"] for e in ends)


def versions_of(*packages: str) -> tuple[str, ...]:
    return tuple(f"{p} {importlib.metadata.version(p)}" for p in packages)


if __name__ == "__main__":
    run_tool(lambda order: (DeltaLiteUpsert if order.tool == "deltalite" else DeltaLakeMerge)(order))
