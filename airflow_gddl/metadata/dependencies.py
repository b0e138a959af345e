"""Checks of `depends_on`: known names, no cycles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem
from airflow_gddl.contract.table_names import TableNames, ambiguous, ambiguous_remedy

_NAMED = 5


def resolve(
    depends_on: Iterable[str], source: str, names: TableNames, refused: Collection[str]
) -> Iterator[str | SpecProblem]:
    """The target of each table that a row depends on, or what is wrong with its name.

    Args:
        depends_on: of the row, in its order.
        source: of the row; its own tables come before those of others.
        names: of all rows whose names are known.
        refused: names of rows that are not loaded, as they are written.
    """
    for i, table in enumerate(depends_on):
        found = names.candidates_within(table, source)
        if len(found) == 1:
            yield next(iter(found.values()))
        elif found:
            path, remedy = ("depends_on", i), ambiguous_remedy(found)
            yield SpecProblem("TABLE_AMBIGUOUS", path, table, ambiguous(table, found), remedy)
        elif table in refused:
            yield table
        else:
            near = names.near(table)
            is_same = near is not None and near.lower() == table.lower()
            meant = f"write {near}" if is_same else f"did you mean {near}?"
            remedy = meant if near else "name a table that some row has, as schema.name"
            yield SpecProblem("DEPENDS_ON_UNKNOWN", ("depends_on", i), table, "no row has this table", remedy)


def cyclic(specs: Sequence[TableSpec]) -> dict[str, SpecProblem]:
    """A problem for each table that is part of a cycle; tables that only depend on such a table are valid."""
    edges = {spec.table: spec.depends_on for spec in specs}
    problems = {}
    for cycle in _components(edges):
        if len(cycle) == 1 and cycle[0] not in edges[cycle[0]]:
            continue
        members = sorted(cycle)
        others = ", ".join(members[:_NAMED]) + (f" and {len(members) - _NAMED} more" if len(members) > _NAMED else "")
        for table in members:
            message = f"a cycle of {len(members)}: {others}"
            remedy = "break the cycle: remove one of these depends_on"
            problems[table] = SpecProblem("DEPENDS_ON_CYCLE", ("depends_on",), list(edges[table]), message, remedy)
    return problems


def _components(edges: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan's algorithm), iterative, since a chain may be as long as the catalog."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: dict[str, None] = {}
    for root in edges:
        if root in number:
            continue
        work = [(root, iter(edges[root]))]
        number[root] = low[root] = len(number)
        open_[root] = None
        while work:
            table, targets = work[-1]
            for target in targets:
                if target in edges and target not in number:
                    number[target] = low[target] = len(number)
                    open_[target] = None
                    work.append((target, iter(edges[target])))
                    break
                if target in open_:
                    low[table] = min(low[table], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[table])
                if low[table] == number[table]:
                    yield _closed(open_, table)


def _closed(open_: dict[str, None], root: str) -> list[str]:
    """Pop the component of `root` from the stack."""
    members: list[str] = []
    while not members or members[-1] != root:
        members.append(open_.popitem()[0])
    return members
