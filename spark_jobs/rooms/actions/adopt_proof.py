"""What an adoption proves where it is asked to, before anything is written: that the table is what its source says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.codes import ADOPT_NOT_PROVED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import few
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.adoption import Adoption
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import PlannedFile, TableState
from spark_jobs.plan.table_schema import Column, Schema, TableSchema
from spark_jobs.rooms.actions.landed_changes import LandedChanges
from spark_jobs.rooms.dialects.protocol import Dialect
from spark_jobs.rules.batch_schema import Stored, plan_batch
from spark_jobs.rules.fold import carried_names
from spark_jobs.rules.order import gddl_fields
from spark_jobs.source_tables import opened, url_of
from spark_jobs.tables.engine import Engine
from spark_jobs.verification import Columns, SourceComparison, state_of


def schema_of_tables(dialect: Dialect, adoption: Adoption) -> TableSchema:
    """Schema of the tables after an adoption: the replica's columns, whatever files bring later."""
    known = TableState(
        sequence_by=adoption.sequence_by, sequence_type=adoption.sequence_type, max_sequence=adoption.max_sequence
    )
    columns = map(Column, adoption.columns, map(parse_type, adoption.types))
    stored = Stored(data=Schema(tuple(columns)), before=Schema(()))
    return plan_batch(dialect, (), stored, known).table_schema


def prove(run: TableRun, context: Engine, ledger: Ledger, adoption: Adoption, connection: str) -> dict[str, Any]:
    """Compare a table that is to be adopted with the source; returns what was compared.

    Args:
        context: of the table as the other job keeps it, with its columns to begin with.
        ledger: the one that has nothing yet.

    Raises:
        FatalError: `ADOPT_NOT_PROVED`; as `source_tables.url_of`, `opened` and `Columns.of`.
        RetriableError: `SOURCE_UNREACHABLE`.
    """
    schema = schema_of_tables(context.dialect, adoption)
    with opened(url_of(connection, run.runtime.environ), run.spec.name_in_source) as table:
        columns, now = Columns.of(table, schema), run.runtime.clock()
        found = SourceComparison(context, TableState(), table, columns, Verify(), now).differences()
    known = {file.path for file in adoption.files}
    # Those too that have landed meanwhile.
    files = [file for file in run.discover(ledger, wait="idle").waiting if file.path not in known] if found.keys else []
    later = _after_files(LandedChanges(run, context, TableState(keys=run.spec.keys)), files, columns)
    by_files, wrong = 0, {}
    for key, hashes in found.keys.items():
        if key in later and later[key] in (hashes[0], _UNKNOWN):
            by_files += 1
        else:
            wrong[key] = state_of(hashes)
    if wrong:
        states = [f"{', '.join(key)} ({state})" for key, state in sorted(wrong.items())]
        what = (
            f"{run.spec.table}: {len(wrong)} keys of the table differ from the source, with the files after the cut "
            f"applied or not: {few(states)}"
        )
        remedy = (
            "repeat it: changes of the last seconds may not have landed yet. Keys that stay are wrong in the table: "
            "correct them, or name an earlier cut, after which files bring them"
        )
        raise FatalError(ADOPT_NOT_PROVED, what, where=context.layout.replica, remedy=remedy)
    return {
        "rows": found.rows, "source_rows": found.source_rows, "by_files": by_files,
        "compared": list(columns.lake), "not_compared": dict(columns.left_out),
    }  # fmt: skip


def _after_files(
    changes: LandedChanges, files: Sequence[PlannedFile], columns: Columns
) -> dict[tuple[str, ...], int | None]:
    """Keys of files after the cut, with the hash of the row that these make; None: none. `_UNKNOWN`: a part of it is
    what is stored."""
    later = changes.net(files)
    if later is None:
        return {}
    net, schema, delivered = later
    there = [name for name in columns.lake if name in delivered]
    are_known = np.full(net.num_rows, len(there) == len(columns.lake))
    flags = carried_names(schema)  # whether the files say a column of a row
    for name in there:
        if flags.get(name) in net.column_names:
            are_known &= np.asarray(net.column(flags[name]))
    gone, hashes = np.asarray(pc.equal(gddl_fields(net)["op"], "D")), dict[tuple[str, ...], int | None]()
    rows = zip(*(net.column(name).to_pylist() for name in there), strict=True)
    for row, is_gone, is_known in zip(rows, gone, are_known, strict=True):
        hashes[columns.key(row)] = None if is_gone else columns.digest(row) if is_known else _UNKNOWN
    return hashes


_UNKNOWN = -1
"""In place of a hash, which is no negative number."""
