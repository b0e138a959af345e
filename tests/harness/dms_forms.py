"""Other forms of the files of a simulated landing folder: what settings of AWS DMS's endpoint and task change."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.extensions import DateDelimiter, DatePartition, date_folder


@dataclass(frozen=True, kw_only=True)
class DmsForm:
    """What differs from the simulator's files.

    Attributes:
        sequence, time: names of the columns of order and commit time.
        ar_h: beside them `AR_H_CHANGE_SEQ` and `AR_H_OPERATION`.
        before_images: prefix of columns with what was before an update, here always null; None: none.
        segment: folder of the full load; empty: the table's own.
    """

    sequence: str = "transact_seq"
    time: str = "dms_timestamp"
    ar_h: bool = False
    before_images: str | None = None
    date_partition: DatePartition = "none"
    date_delimiter: DateDelimiter = "slash"
    segment: str = ""
    gzipped: bool = False


def rewrite(root: Path, form: DmsForm) -> None:
    """Replace each parquet file below `root/<schema>/<table>/` by one of that form."""
    for path in sorted(root.rglob("*.parquet")):
        is_load = path.name.startswith("LOAD")
        table = _columns(pq.read_table(path), form)
        path.unlink()
        target = _place(path, form, is_load=is_load)
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target)
        if form.gzipped:
            target.with_suffix(".parquet.gz").write_bytes(gzip.compress(target.read_bytes()))
            target.unlink()


def _columns(table: pa.Table, form: DmsForm) -> pa.Table:
    service = ("Op", "transact_seq", "dms_timestamp")
    own = [name for name in table.schema.names if name not in service]
    if form.ar_h:
        operations = table["Op"] if "Op" in table.schema.names else pa.nulls(table.num_rows, pa.string())
        table = table.append_column("AR_H_CHANGE_SEQ", table["transact_seq"]).append_column(
            "AR_H_OPERATION", operations
        )
    for name in own if form.before_images else ():
        table = table.append_column(f"{form.before_images}{name}", pa.nulls(table.num_rows, table[name].type))
    names = {"transact_seq": form.sequence, "dms_timestamp": form.time}
    return table.rename_columns([names.get(name, name) for name in table.schema.names])


def _place(path: Path, form: DmsForm, *, is_load: bool) -> Path:
    if is_load:
        return path.parent / form.segment / path.name
    moment = datetime.strptime(path.name[:15], "%Y%m%d-%H%M%S")  # noqa: DTZ007 - names tell no zone
    return path.parent / date_folder(form.date_partition, form.date_delimiter, moment) / path.name
