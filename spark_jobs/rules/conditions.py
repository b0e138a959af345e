"""Conditions on rows: which are outside the row filter, and which fail expectations. Each row for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.table_spec import Expectation, TableSpec, Term
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.batch_schema import RowProblem
from spark_jobs.rules.carried import carried
from spark_jobs.rules.evaluate import holds, of_table, tree_of

FAILED_CODE = "EXPECTATION_FAILED"
"""Of rows in quarantine, of warnings, and of runs that an expectation stops."""
Tally = tuple[int, int]
"""Rows that were checked, and how many of them failed."""


UNDECIDED_CODE = "FILTER_UNDECIDED"


def outside_filter(rows: pa.Table, schema: TableSchema, sound: np.ndarray) -> tuple[np.ndarray, RowProblem]:
    """Rows outside the filter: those that are inserted or updated and for which it is false or null.

    Args:
        rows: columns of the change table and `_gddl`.
        sound: rows without an error.

    Returns:
        the mask, and the problem of updates that lack a column of the filter.

    Raises:
        FatalError: as `Columns.condition`.
    """
    spec = schema.spec
    tree = tree_of(spec, spec.where or "")
    ops = pc.struct_field(rows.column(GDDL), "op")
    there = sound & holds(pc.not_equal(ops, "D"))
    undecided = there & holds(pc.equal(ops, "U")) & ~_carries(rows, schema, tree)
    inside = holds(of_table(rows, schema.spelled, f"{spec.table}, where").condition(tree))
    reason = "an update that lacks a column of the row filter, so that it is not known whether the row passes"
    return there & ~undecided & ~inside, RowProblem(undecided, UNDECIDED_CODE, None, reason)


@dataclass(frozen=True, kw_only=True)
class CheckedRows:
    """Attributes:
    problems: of rows that go to the quarantine.
    tallies: by the expectation's name.
    """

    problems: tuple[RowProblem, ...] = ()
    tallies: Mapping[str, Tally] = field(default_factory=dict)


def checked(rows: pa.Table, schema: TableSchema, sound: np.ndarray, *, replayed: bool) -> CheckedRows:
    """Check the rows that are inserted or updated and have no other error.

    An update is not checked by a rule on columns that it doesn't carry: these keep their stored values.

    Args:
        rows: columns of the change table and `_gddl`.
        sound: rows without an error.
        replayed: rows of the quarantine, which stay there where a rule under `fail` does not hold.

    Raises:
        FatalError: as `Columns.condition`.
    """
    spec = schema.spec
    ops = pc.struct_field(rows.column(GDDL), "op")
    there = sound & holds(pc.not_equal(ops, "D"))
    updates = holds(pc.equal(ops, "U"))
    problems, tallies = [], {}
    for name, expectation in spec.expect.items():
        columns = of_table(rows, schema.spelled, f"{spec.table}, expect.{name}")
        tree = tree_of(spec, expectation.rule)
        mine = there & (~updates | _carries(rows, schema, tree))
        failed = mine & ~holds(columns.condition(tree))
        tallies[name] = (int(mine.sum()), int(failed.sum()))
        if failed.any() and (expectation.on == "quarantine" or (replayed and expectation.on == "fail")):
            column = tree.columns[0] if len(tree.columns) == 1 else None
            reason = f"expectation {name} does not hold: {expectation.rule}"
            problems.append(RowProblem(failed, FAILED_CODE, column, reason))
    return CheckedRows(problems=tuple(problems), tallies=tallies)


def _carries(rows: pa.Table, schema: TableSchema, tree: Term) -> np.ndarray:
    """Whether each update carries all columns of an expression."""
    found = np.ones(rows.num_rows, dtype=bool)
    for name in tree.columns if schema.partial else ():
        spelled = schema.spelled(name)
        if spelled is not None:
            found &= carried(rows, schema, spelled)
    return found


def added(parts: list[Mapping[str, Tally]]) -> dict[str, Tally]:
    """Tallies of parts as those of the whole."""
    found: dict[str, Tally] = {}
    for name, (count, failed) in (item for part in parts for item in part.items()):
        known = found.get(name, (0, 0))
        found[name] = (known[0] + count, known[1] + failed)
    return found


def require_within_limits(spec: TableSpec, tallies: Mapping[str, Tally]) -> None:
    """Refuse a batch of which a larger share of rows fails an expectation than the row allows.

    Raises:
        FatalError: `EXPECTATION_FAILED`.
    """
    for name, (count, failed) in tallies.items():
        expectation = spec.expect[name]
        if failed > expectation.limit * count:
            raise FatalError(
                FAILED_CODE,
                f"{spec.table}: {failed} of {count} rows fail the expectation {name}, {_limit(expectation)}",
                where=f"expect.{name}: {expectation.rule}",
                remedy="correct them at the source, or change the expectation in the row; nothing was written",
            )


def _limit(expectation: Expectation) -> str:
    if expectation.at_most is None:
        return "which stops the batch"
    return f"of which at most {expectation.at_most:.10g} may (a share of the batch)"
