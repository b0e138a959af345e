"""`depends_on` between tables: known names, no circles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem, spec_problem

_NAMED = 5


def unknown(depends_on: Iterable[str], names: Collection[str], folded: Mapping[str, str]) -> Iterator[SpecProblem]:
    """Tables that a row depends on and no row names.

    Args:
        depends_on: of the row, in its order.
        names: every table that some row names, be that row sound or not.
        folded: the same by lower case, to tell a slip of case.
    """
    for i, table in enumerate(depends_on):
        if table not in names:
            near = folded.get(table.lower())
            remedy = f"write {near}" if near else "name a table that some row has, as schema.name"
            yield spec_problem("DEPENDS_ON_UNKNOWN", ("depends_on", i), table, "no row has this table", remedy)


def circular(specs: Sequence[TableSpec]) -> dict[str, SpecProblem]:
    """A problem for each table that in the end depends on itself; one that merely depends on such a table is sound."""
    edges = {spec.table: spec.depends_on for spec in specs}
    problems = {}
    for circle in _components(edges):
        if len(circle) == 1 and circle[0] not in edges[circle[0]]:
            continue
        members = sorted(circle)
        others = ", ".join(members[:_NAMED]) + (f" and {len(members) - _NAMED} more" if len(members) > _NAMED else "")
        for table in members:
            message = f"a circle of {len(members)}: {others}"
            remedy = "break the circle: remove one of these depends_on"
            problems[table] = spec_problem("DEPENDS_ON_CYCLE", ("depends_on",), list(edges[table]), message, remedy)
    return problems


def _components(edges: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan), without recursion: a chain may be as long as the catalog."""
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
    """Take the component of `root` off the end of the open ones."""
    members: list[str] = []
    while not members or members[-1] != root:
        members.append(open_.popitem()[0])
    return members
