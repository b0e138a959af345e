"""Cuts of tables of a lake in this process, as the command makes them: look, choose, make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import ConsistentCut
from airflow_gddl.contract.consistent_cut import (
    Cut,
    CutFacts,
    CutTable,
    Moment,
    asked_moment,
    chosen,
    cut_path,
)
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from tests.harness.lake import Lake, read_table

Job = Callable[[TableSpec, JobOptions], JobResult]
"""Runs an action for a table."""


class RefusedError(Exception):
    """What a job says of a table that can't be shown."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Cuts:
    """Attributes:
    run: by which tables are looked at and made.
    """

    lake: Lake
    specs: Sequence[TableSpec]
    run: Job

    def facts(self, at: str) -> list[CutFacts]:
        return [codec.decode(CutFacts, self._answer(spec, ConsistentCut(at=at))["facts"]) for spec in self.specs]

    def make(self, name: str, at: str = "latest") -> Cut:
        facts = self.facts(at)
        return self.made(name, chosen(asked_moment(at), facts), facts, asked=at)

    def made(self, name: str, moment: Moment, facts: Sequence[CutFacts], *, asked: str) -> Cut:
        tables = tuple(CutTable.of(name, one) for one in facts)
        cut = Cut(name=name, source="s", asked=asked, moment=moment, begun_at="", tables=tables)
        self.write(cut)
        answers = [self._answer(spec, ConsistentCut(cut=cut.name))["table"] for spec in self.specs]
        cut = replace(cut, tables=tuple(codec.decode(CutTable, answer) for answer in answers))
        self.write(cut)
        return cut

    def write(self, cut: Cut) -> None:
        Storage().write(cut_path(self.lake.roots.lake, cut.name), codec.to_json(cut).encode())

    def stored(self, name: str) -> Cut:
        return codec.from_json(Cut, Storage().read(cut_path(self.lake.roots.lake, name)).decode())

    def rows(self, cut: Cut, table: str, *columns: str) -> list[dict[str, Any]]:
        """Rows of a table of a cut; all columns of the source where none is named."""
        entry = cut.of(table)
        assert entry is not None
        rows = read_table(str(self.lake.root / "lake" / entry.folder)).to_pylist()
        return sorted((_source(row, columns) for row in rows), key=str)

    def _answer(self, spec: TableSpec, action: ConsistentCut) -> Mapping[str, Any]:
        result = self.run(spec, JobOptions(action=action, full_listing=not action.cut))
        if result.error is not None:
            raise RefusedError(result.error.code, result.error.message)
        assert isinstance(result.details, Mapping)
        return result.details


def _source(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    if columns:
        return {name: row[name] for name in columns}
    return {name: value for name, value in row.items() if not name.startswith(("_gddl", "_dbz", "AR_H"))}
