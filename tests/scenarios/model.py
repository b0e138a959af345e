"""What a `scenario.yaml` holds; decoded strictly, so that a typo is an error with its path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from tests.harness.asked import options_of
from tests.harness.landing import Codec

Row = Mapping[str, Any]
SCHEMA = "sc"


@dataclass(frozen=True, kw_only=True)
class FileStep:
    """A file to write before a run.

    Attributes:
        name: path below the table's landing folder; the suffix chooses the form.
        columns: columns in file order; empty: those of the rows in the order they come.
        types: Arrow types, over those of the scenario.
        raw: the content as text, instead of rows.
        int96: timestamps in parquet as INT96.
        cut: bytes taken off the end; the file can't be read then.
        ignored: not a data file, whatever its name suggests.
    """

    name: str
    rows: tuple[Row, ...] = ()
    columns: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    raw: str | None = None
    cut: int = 0
    codec: Codec = "snappy"
    int96: bool = False
    ignored: bool = False

    @property
    def column_names(self) -> tuple[str, ...]:
        return self.columns or tuple(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def kind(self) -> Literal["load", "change"]:
        return "load" if "LOAD" in self.name.rsplit("/", 1)[-1] else "change"


@dataclass(frozen=True, kw_only=True)
class ExpectedError:
    """A row of the errors table; what is null is not compared.

    Attributes:
        file: the end of `source_file`.
        has, lacks: texts that must, or must not, be somewhere in the row.
    """

    code: str
    column: str | None = None
    file: str | None = None
    position: int | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExpectedWarning:
    code: str
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What must hold after a run; what is null is not compared.

    Attributes:
        replica, changes, history: rows without regard to order. A column that a row leaves out is null there. Where
            a row has `_gddl`, all have it with the same fields, and only those are compared. `changes` may be a count.
        columns: names of the replica's columns in order, without `_gddl`.
        types: some columns of the replica and their SQL types.
        unchecked: columns left out of every comparison of rows, and why.
        not_by_oracle: tables that the oracle can't be asked about, for it knows no types.
        replica_has, changes_lack: texts that some value of the table holds, and that none holds.
        warnings: all warnings of the run.
        result: part of the JobResult.
        result_has: texts in `error.message` of the JobResult.
    """

    replica: tuple[Row, ...] | None = None
    changes: int | tuple[Row, ...] | None = None
    history: tuple[Row, ...] | None = None
    errors: tuple[ExpectedError, ...] | None = None
    warnings: tuple[ExpectedWarning, ...] | None = None
    columns: tuple[str, ...] | None = None
    types: Mapping[str, str] | None = None
    unchecked: Mapping[str, str] = field(default_factory=dict)
    not_by_oracle: tuple[Literal["replica", "changes", "history"], ...] = ()
    replica_has: tuple[str, ...] = ()
    changes_lack: tuple[str, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    result_has: tuple[str, ...] = ()


NOTHING = Expected()


@dataclass(frozen=True, kw_only=True)
class RunStep:
    """Attributes:
    remove: files deleted before the run; `.` is the whole folder.
    options: as `tests.harness.asked` takes them.
    table: metadata fields that change from this run on.
    """

    files: tuple[FileStep, ...] = ()
    remove: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    table: Mapping[str, Any] = field(default_factory=dict)
    expect: Expected = NOTHING


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Attributes:
    rule: what it shows: numbers of rules of the design's section 7, `dms`, `masks`.
    table: the metadata row; `table` is set by the runner.
    types: Arrow type of each column; others by their values.
    order_free: the files may come in any order, over any runs.
    one_go: all files may come in one run.
    not_modelled: why the oracle can't be asked; null where it must agree.
    expect: after the last run.
    """

    rule: tuple[str, ...]
    title: str
    table: Mapping[str, Any]
    runs: tuple[RunStep, ...]
    expect: Expected
    types: Mapping[str, str] = field(default_factory=dict)
    order_free: bool = False
    one_go: bool = False
    not_modelled: str | None = None
    name: str = ""

    def __str__(self) -> str:
        """The name of its tests."""
        return self.name

    def spec(self, upto: int | None = None) -> TableSpec:
        """The metadata row as it is at a run (from 0); null: at the last."""
        row = {**self.table, "table": f"{SCHEMA}.{self.name}"}
        for run in self.runs[: None if upto is None else upto + 1]:
            row |= run.table
        return with_expressions(decode(TableSpec, row))

    def expected(self, run: int) -> Expected:
        """Of the last run, the scenario's own."""
        return self.expect if run == len(self.runs) - 1 else self.runs[run].expect


def check(scenario: Scenario) -> list[str]:
    """What is wrong with a scenario beyond its form; empty when nothing is."""
    problems = [] if scenario.runs else ["no runs"]
    if scenario.runs and scenario.runs[-1].expect != NOTHING:
        problems.append("the last run's `expect` is the scenario's own")
    files = [file for run in scenario.runs for file in run.files]
    names = [file.name for file in files]
    if (scenario.order_free or scenario.one_go) and len(set(names)) != len(names):
        problems.append("a file written twice: neither `order_free` nor `one_go`")
    if scenario.order_free and len(files) < 2:
        problems.append("one file has no order")
    for number, run in enumerate(scenario.runs):
        options_of(**run.options)
        problems += _check_result(scenario.expected(number).result)
        scenario.spec(number)
    for file in files:
        problems += [
            f"{file.name}: type of {name!r}, no such column" for name in set(file.types) - set(file.column_names)
        ]
        problems += [
            f"{file.name}: {row} has a column not in `columns`"
            for row in file.rows
            if set(row) - set(file.column_names)
        ]
    came = {name for file in files for name in file.column_names}
    return problems + [f"type of {name!r}, no such column" for name in set(scenario.types) - came]


def _check_result(result: Mapping[str, Any]) -> list[str]:
    return [
        f"result.{name}: JobResult has no such field" for name in result if name not in JobResult.__dataclass_fields__
    ]
