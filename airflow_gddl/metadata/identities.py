"""Names of tables in rows, sources and the lake, with checks for collisions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.contract.layout import SHARDS, LandingFolder
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem
from airflow_gddl.contract.targets import REMEDY, rendered
from airflow_gddl.metadata.table_files import Row

_TEMPLATE = "'{source}_{schema}.{table}'"


def resolved(spec: TableSpec, landing: str | None) -> TableSpec | SpecProblem:
    """The spec under its target's name.

    Args:
        spec: as its row says it.
        landing: of its declared source; null: the source is not declared.
    """
    if spec.target is None:
        return spec if landing is None else replace(spec, landing=landing)
    target = rendered(spec.target, spec.source, spec.table)
    if fault := table_name_fault(target):
        message = f"{spec.source}:{spec.table} would be {target!r}: {fault}"
        return SpecProblem("TARGET_INVALID", ("target",), spec.target, message, REMEDY)
    own = None if target == spec.table else spec.table
    return replace(spec, table=target, target=None, source_table=own, landing=landing)


@dataclass(frozen=True)
class NamedRow:
    """A row that is valid by itself, and its spec."""

    row: Row
    spec: TableSpec

    @property
    def place(self) -> str:
        position = self.row.own.locate(("table",))
        return self.row.own.file if position is None else f"{self.row.own.file}:{position.line}"


@dataclass
class TakenNames:
    """Targets and landing folders of the rows so far; case does not count in names of tables."""

    roots: Roots
    by_target: dict[str, NamedRow] = field(default_factory=dict)
    _by_folder: dict[str, NamedRow] = field(default_factory=dict)
    _above: dict[str, NamedRow] = field(default_factory=dict)

    def take(self, named: NamedRow) -> SpecProblem | None:
        """Reserve the row's names; return the problem if one is taken, or null."""
        spec = named.spec
        folder = LandingFolder.of(self.roots, spec)
        if spec.shards:  # it has no folder of its own, and may share those of its sources
            folder = replace(folder, root=f"{SHARDS}:{spec.source}")
        place = replace(folder, table=folder.table.lower()).path
        problem = self._problem(named, place)
        if problem is None:
            self.by_target[spec.table.lower()] = named
            self._by_folder[place] = named
            self._above |= dict.fromkeys(_folders_above(place), named)
        return problem

    def _problem(self, named: NamedRow, place: str) -> SpecProblem | None:
        spec, same_folder = named.spec, self._by_folder.get(place)
        name = spec.name_in_source
        same_target = self.by_target.get(spec.table.lower())
        if same_folder is not None and (same_folder is same_target or same_folder.spec.source == spec.source):
            message = f"this table has a row already, at {same_folder.place} (case does not count)"
            return SpecProblem("TABLE_DUPLICATE", ("table",), name, message, "remove one of the two rows")
        if same_target is not None:
            other = same_target.spec.qualified_name
            message = f"{spec.qualified_name} and {other} ({same_target.place}) have the target {spec.table}"
            remedy = f"give one of the two sources a target in gddl.yaml, e.g. target: {_TEMPLATE}"
            return SpecProblem("TARGET_TAKEN", ("table",), name, message, remedy)
        above = (self._by_folder[folder] for folder in _folders_above(place) if folder in self._by_folder)
        nested = same_folder or self._above.get(place) or next(above, None)
        if nested is not None:
            mine, other = LandingFolder.of(self.roots, spec).path, LandingFolder.of(self.roots, nested.spec).path
            message = f"its files in {mine} and those of {nested.spec.qualified_name} in {other} ({nested.place}) mix"
            remedy = "give each source in gddl.yaml a landing root of its own"
            return SpecProblem("LANDING_SHARED", ("table",), name, message, remedy)
        return None


def _folders_above(place: str) -> list[str]:
    parts = place.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts) - 1, 1, -1)]
