"""Names and bytes of landed files; equal tables give equal bytes."""

from __future__ import annotations

import gzip
import io
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.dms import date_folder
from airflow_gddl.devtools.simulate.events import Envelopes, json_bytes
from airflow_gddl.devtools.simulate.spec import Delivery

_MARKS = (",", '"', "\n", "\r")


@dataclass(frozen=True)
class Namer:
    """Names below a table's folder."""

    delivery: Delivery

    def load(self, index: int, count: int) -> str:
        """Name of full-load file `index` of `count`, from 0; with segments they take turns in runs of equal length."""
        if self.delivery.debezium:
            return self._of_offset(index)
        if self.delivery.segments == 0:
            return f"LOAD{index + 1:08X}.{self.delivery.format}"
        run = -(-count // self.delivery.segments)
        segment, within = index // run + 1, index % run + 1
        mark = f"SEGMENT{segment}" + ("_" if self.delivery.segment_style == "name" else "/")
        return f"{mark}LOAD{within:08X}.{self.delivery.format}"

    def change(self, moment: datetime) -> str:
        if self.delivery.debezium:
            return self._of_offset(int(moment.timestamp() * 1000))
        name = f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 1000:03d}.{self.delivery.format}"
        folder = date_folder(self.delivery.date_partition, self.delivery.date_delimiter, moment)
        return f"{folder}/{name}" if folder else name

    def _of_offset(self, offset: int) -> str:
        """As Confluent's sink: offsets only have to grow."""
        return f"partition=0/events+0+{offset:013d}.{self.delivery.format}"


def to_bytes(table: pa.Table, delivery: Delivery) -> bytes:
    """The file's content."""
    if delivery.debezium:
        data = json_bytes(Envelopes.of(table, delivery))
    else:
        data = _csv(table, delivery) if delivery.format.startswith("csv") else parquet_bytes(table)
    return gzip.compress(data, compresslevel=6, mtime=0) if delivery.format.endswith(".gz") else data


def parquet_bytes(table: pa.Table) -> bytes:
    """Settings spelt out, and no Arrow schema inside, which the service doesn't write either."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="snappy", version="2.6", store_schema=False, row_group_size=1 << 20)
    return sink.getvalue()


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, as an object store does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(data)
    os.replace(partial, path)  # noqa: PTH105 - same file system, one step


def _csv(table: pa.Table, delivery: Delivery) -> bytes:
    if table.num_rows == 0 and not delivery.csv_header:
        return b""
    cells = [_cells(column, delivery.csv_null) for column in table.columns]
    lines = pc.binary_join_element_wise(*cells, ",")
    head = [",".join(_quoted_name(name) for name in table.schema.names)] if delivery.csv_header else []
    return ("\n".join([*head, *lines.to_pylist()]) + "\n").encode()


def _cells(values: pa.ChunkedArray, null: str) -> pa.ChunkedArray:
    """Text of each cell, quoted where it must be or could be taken for a null."""
    if not pt.is_string(values.type):
        return values.cast(pa.string()).fill_null(null)
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(values, '"', '""'), '"', "")
    special = pc.match_substring_regex(values, '[,"\\r\\n]|^\\s|\\s$|^$')
    doubtful = pc.or_(special, pc.equal(values, null))
    return pc.if_else(doubtful, quoted, values).fill_null(null)


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(mark in name for mark in _MARKS) else name
