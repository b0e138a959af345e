"""Which columns a table may lose for good: those that the source has dropped, and that nothing in the row names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.row_checks import named_columns
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import VOID
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.tables.engine import TableContext

_HARMLESS = ("mask", "exclude_columns")
"""Fields that may name a column that the table does not have."""


def require_droppable(run: TableRun, context: TableContext, ledger: Ledger, names: Sequence[str]) -> None:
    """Require that no file, key or field of the row needs the columns that are to be dropped.

    Raises:
        FatalError: `COLUMN_NOT_DROPPED`, with each column and why it stays.
    """
    plan, state = ledger.plan(), ledger.state
    if plan is not None and plan.mode == "refresh" and lowered(plan.drops) == lowered(names):
        return  # it has begun: the tables may lack the columns already
    if state.keys is None:
        what, remedy = f"{run.spec.table} has no table yet", f"load it: `gddl run --table {run.spec.table}`"
        raise FatalError("COLUMN_NOT_DROPPED", what, remedy=remedy)
    schema = context.stored_schema(state)
    reasons = [f"{name}: {why}" for name in names if (why := _why_it_stays(name, run.spec, schema, ledger))]
    if reasons:
        what = f"{run.spec.table} keeps its columns: {'; '.join(reasons)}; nothing was written"
        remedy = "drop it at the source first, load what it has written since, and take it out of the metadata row"
        raise FatalError("COLUMN_NOT_DROPPED", what, remedy=remedy)


def _why_it_stays(name: str, spec: TableSpec, schema: TableSchema, ledger: Ledger) -> str:
    """Empty: it may go."""
    if name.lower() not in lowered(column.name for column in schema.data):
        return f"the table has no such column; it has {', '.join(column.name for column in schema.data)}"
    if name.lower() in lowered(schema.keys):
        return "it is of the key"
    if name.lower() in lowered(schema.sequence) or schema.is_technical(name):
        return "it orders changes, or says what they are"
    if field := next(_fields_that_name(name, spec), None):
        return f"the metadata row names it in {field}"
    if file := _delivering(name, schema, ledger):
        return f"files deliver it still, the newest is {file}"
    return ""


def _fields_that_name(name: str, spec: TableSpec) -> Iterator[str]:
    for path, column in named_columns(spec):
        if landed_name(column).lower() == name.lower() and path[0] not in _HARMLESS:
            yield str(path[0])
    if name.lower() in lowered(spec.schema.require):
        yield "schema.require"
    texts = {"where": [spec.where or ""], "derive": [*spec.derive, *spec.derive.values()],
             "expect": [one.rule for one in spec.expect.values()]}  # fmt: skip
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    yield from (field for field, lines in texts.items() if any(map(word.search, lines)))


def _delivering(name: str, schema: TableSchema, ledger: Ledger) -> str:
    """A file of the newest batch with files that has the column, with more than nulls; empty: none has.

    A file that has no other column than those of the key and the order, as deletes may be sent, says nothing of it.
    """
    telling = {
        column.name.lower() for column in schema.data if column.name != name and not schema.is_technical(column.name)
    } - lowered(schema.keys)
    delivered = [
        (entry, lowered(column for column, kind in ledger.state.schemas[entry.schema].items() if kind != str(VOID)))
        for entry in ledger.all_entries().values()
        if entry.schema is not None and entry.rows
    ]
    read = [(entry, columns) for entry, columns in delivered if columns & (telling | {name.lower()}) or not telling]
    newest = max((entry.batch for entry, _ in read), default=0)
    return next((one.path for one, columns in read if one.batch == newest and name.lower() in columns), "")
