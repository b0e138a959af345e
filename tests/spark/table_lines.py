"""Table contents as sorted lines of text: of an engine, and as the oracle expects them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from tests.harness.lake import Row, read
from tests.harness.strategies import Case
from tests.oracle import Counts, Outcome, Value
from tests.oracle.fold import rescued_text
from tests.scenarios.comparing import plain

TableLines = Mapping[str, Sequence[str]]
"""Name of a table to its lines."""

_ROW = (1 << 40) - 1
_WHEN = ("applied_at", "occurred_at")


def everything(layout: Layout, read: Callable[[str], Sequence[Row]] = read) -> TableLines:
    """All five tables but for our own clock; paths start below the landing folder, errors are unresolved.

    Args:
        read: all rows of the table at a path.
    """
    tables = {name: read(getattr(layout, name)) for name in ("replica", "changes", "history", "tombstones", "errors")}
    tables["errors"] = [row for row in tables["errors"] if row["resolved_at"] is None]
    return {name: _lines(map(_timeless, rows), layout) for name, rows in tables.items()}


def of_other_keys(tables: TableLines, key: Mapping[str, Value] | None) -> TableLines:
    """Replica and history without the rows of a key; null: with all rows."""
    names = ("replica", "history")
    if key is None:
        return {n: tables[n] for n in names}
    return {n: [x for x in tables[n] if any(json.loads(x).get(k) != v for k, v in key.items())] for n in names}


def _timeless(row: Row) -> Row:
    return {name: _timeless(v) if isinstance(v, dict) else v for name, v in row.items() if name not in _WHEN}


def by_engine(layout: Layout, read: Callable[[str], Sequence[Row]] = read) -> TableLines:
    """The part of each table that the oracle models.

    Args:
        read: all rows of the table at a path.
    """
    errors = [row for row in read(layout.errors) if row["resolved_at"] is None]
    return {
        "replica": _lines((_with(row, _state(row["_gddl"])) for row in read(layout.replica)), layout),
        "changes": _lines((_with(row, _place(row["_gddl"])) for row in read(layout.changes)), layout),
        "history": _lines((_with(row, {}) for row in read(layout.history)), layout),
        "errors": _lines(
            ({n: row[n] for n in ("source_file", "position", "code", "column")} for row in errors), layout
        ),
    }


def _with(row: Row, gddl: Row) -> Row:
    return {**row, "_gddl": gddl}


def _state(gddl: Row) -> Row:
    return {name: gddl.get(name) for name in ("op", "sequence", "generation", "deleted")}


def _place(gddl: Row) -> Row:
    found = {name: gddl[name] for name in ("op", "sequence", "generation", "source_file")}
    return {**found, "row": gddl["position"] & _ROW}


def by_oracle(outcome: Outcome, spec: TableSpec) -> TableLines:
    """The same as the oracle expects it."""
    soft = spec.delete == "soft"
    replica = [
        {**row.columns, "_gddl": {"op": row.op, "sequence": _stored(row.sequence, spec), "generation": row.generation,
                                  "deleted": row.deleted if soft else None}}
        for row in outcome.replica
    ]  # fmt: skip
    changes = [
        {**c.row, "_rescued_data": rescued_text({n: (v, c.source_file) for n, v in c.rescued.items()}),
         "_gddl": {"op": c.op, "sequence": _stored(c.sequence, spec), "generation": c.generation,
                   "source_file": c.source_file, "row": c.position & _ROW}}
        for c in outcome.changes
    ]  # fmt: skip
    history = [
        {**v.columns, "__start_at": _stored(v.start, spec), "__end_at": _stored(v.end, spec),
         "__start_generation": v.start_generation, "__end_generation": v.end_generation,
         "__valid_from": _utc(v.valid_from), "__valid_to": _utc(v.valid_to)}
        for v in outcome.history
    ]  # fmt: skip
    errors = [{"source_file": q.file, "position": q.position, "code": q.code, "column": q.column}
              for q in outcome.quarantined]  # fmt: skip
    return {
        "replica": _lines(replica),
        "changes": _lines(changes),
        "history": _lines(history),
        "errors": _lines(errors),
    }


def _utc(moment: datetime | None) -> datetime | None:
    return moment and moment.replace(tzinfo=UTC)


def _stored(sequence: tuple[Any, ...] | None, spec: TableSpec) -> Any:
    """A struct where the row names several columns."""
    if sequence is None or len(sequence) == 1:
        return sequence and sequence[0]
    return dict(zip(spec.sequence_by, sequence, strict=True))


def _lines(rows: Iterable[Row], layout: Layout | None = None) -> list[str]:
    """Nulls are left out; paths start below the landing folder."""
    lines = [json.dumps(_without_nulls(plain(row)), ensure_ascii=False, sort_keys=True) for row in rows]
    return sorted(lines if layout is None else [line.replace(f"{layout.landing}/", "") for line in lines])


def _without_nulls(row: Row) -> Row:
    return {n: _without_nulls(v) if isinstance(v, dict) else v for n, v in row.items() if v is not None and v != {}}


def differences(wanted: TableLines, actual: TableLines) -> list[str]:
    """A line for each row that is missing or extra; empty when the tables are equal."""
    found = []
    for table, lines in wanted.items():
        want, have = Counter(lines), Counter(actual[table])
        found += [f"{table} missing {line}" for line in sorted((want - have).elements())]
        found += [f"{table} extra   {line}" for line in sorted((have - want).elements())]
    return found


def counts_of(result: JobResult) -> Counts:
    return Counts(result.rows_read, result.changes_written, result.redelivered, result.quarantined)


def readable(case: Case) -> str:
    """The case as one would write it down."""
    defaults = TableSpec(table=case.spec.table, keys=case.spec.keys)
    fields = {n: v for n, v in vars(case.spec).items() if n in ("table", "keys") or v != getattr(defaults, n)}
    lines = [", ".join(f"{name}={value!r}" for name, value in fields.items())]
    for number, run in enumerate(case.runs):
        lines.append(" ".join(["run", str(number), *(f"{name}={value!r}" for name, value in run.settings.items())]))
        for file in run.files:
            lines.append(f"  {file.name} ({', '.join(file.columns)})")
            lines += [f"    {dict(row)}" for row in file.rows]
    return "\n".join(lines)
