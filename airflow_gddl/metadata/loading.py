"""The metadata folder as one frozen value: valid tables and problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from airflow_gddl.contract.codes import FIELD_VALUE, FILE_NOT_READ, TABLE_AMBIGUOUS
from airflow_gddl.contract.errors import FieldPath, SpecProblem
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.names import TableNames, ambiguous, ambiguous_remedy, few
from airflow_gddl.contract.source_access import SourceAccess
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.metadata import files
from airflow_gddl.metadata.folder import ENDINGS, FILE, FOLDERS, Folder, open_folder
from airflow_gddl.metadata.keys import ENDINGS as KEYS_ENDINGS
from airflow_gddl.metadata.keys import FOLDER as KEYS
from airflow_gddl.metadata.keys import read_keys, report
from airflow_gddl.metadata.problems import Layer, Problem, one_or_more, screen, show_name
from airflow_gddl.metadata.rows import FOLDER as ROWS
from airflow_gddl.metadata.rows import NamedRow, Row, TableFile, TakenNames, assess, table_files
from airflow_gddl.metadata.settings import Settings, read_settings
from airflow_gddl.metadata.sources import Source, check_rows


def _target(table: str, source: str, names: _Names, path: FieldPath) -> str | SpecProblem:
    """The target of a table that a row of `source` names, or what is wrong with the name: the source's own tables come
    before those of others."""
    targets = names.tables.candidates_within(table, source)
    if len(targets) == 1:
        return next(iter(targets.values()))
    if targets:
        return SpecProblem(TABLE_AMBIGUOUS, path, table, ambiguous(table, targets), ambiguous_remedy(targets))
    if table in names.written:
        return table
    near = names.tables.near(table)
    is_same = near is not None and near.lower() == table.lower()
    meant = f"write {near}" if is_same else f"did you mean {near}?"
    remedy = meant if near else "name a table that some metadata row has, as schema.name"
    message = "no metadata row has this table"
    return SpecProblem(FIELD_VALUE, path, table, message, remedy)


def cyclic(specs: Sequence[TableSpec]) -> dict[str, SpecProblem]:
    """A problem for each table that is part of a cycle; tables that only depend on such a table are valid."""
    edges = {spec.table: spec.depends_on for spec in specs if spec.depends_on}
    problems = {}
    for cycle in _components(edges):
        if len(cycle) == 1 and cycle[0] not in edges[cycle[0]]:
            continue
        members = sorted(cycle)
        for table in members:
            message = f"a cycle of {len(members)}: {few(members)}"
            remedy = "break the cycle: remove one of these depends_on"
            problems[table] = SpecProblem(FIELD_VALUE, ("depends_on",), list(edges[table]), message, remedy)
    return problems


def _components(edges: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan's algorithm), iterative, since a chain may be of all tables."""
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


_UNREAD_REMEDY = "rename it to .yaml or .json (tables: or .csv), copy the files of a linked folder, or remove it"
# Besides the folders that are read: JSON Schemas.
_KNOWN = (FILE, *FOLDERS, "schema")


@dataclass(frozen=True, kw_only=True)
class LoadedMetadata(Settings):
    """Settings and rows of the metadata.

    Attributes:
        tables: the valid rows, sorted by `table`. `depends_on` may name a table whose row is invalid.
        problems: in the order of files and lines; a row that has one is not in `tables`.
        unused_keys: a warning for each table that a keys file names and no row does, sorted by table.
        rows: of `tables`, as read, by table; empty unless they were asked for.
        named: source and name in the source, in lower case, of every row, invalid ones included; without a source where
            the row names none. Empty where no source is in `proposing`.
    """

    tables: tuple[TableSpec, ...]
    problems: tuple[Problem, ...]
    unused_keys: tuple[Problem, ...] = ()
    rows: Mapping[str, Row] = field(default_factory=dict, compare=False, repr=False)
    named: frozenset[tuple[str, str]] = frozenset()

    @property
    def landings(self) -> Mapping[str, str]:
        """Absolute landing root of each source that the settings declare."""
        return {name: source.landing for name, source in self.sources.items()}

    @property
    def access(self) -> tuple[SourceAccess, ...]:
        """Sources whose landing root is read with credentials of its own."""
        return tuple(source.access for source in self.sources.values() if source.access is not None)

    @property
    def proposing(self) -> Mapping[str, Source]:
        """Sources of which new tables are proposed, by short name."""
        return {name: source for name, source in self.sources.items() if source.proposes}

    def placed(self, problem: SpecProblem, table: str) -> Problem:
        """A problem of a table at the place that set the value, where `rows` are kept."""
        row = self.rows.get(table)
        return report(problem, (_NOWHERE,) if row is None else row.layers, table)


_NOWHERE = Layer("", {})


def load(
    metadata_dir: str | Path,
    environ: Mapping[str, str],
    *,
    keep_rows: bool = False,
) -> LoadedMetadata:
    """Read a metadata folder: a local path, or an `s3://` URL.

    Args:
        environ: names that start with `GDDL_` override settings; `AWS_…` say how S3 is reached.
        keep_rows: fill `LoadedMetadata.rows`.

    Raises:
        MetadataError: `SETTINGS_INVALID`: `gddl.yaml` or a variable is invalid.
        RetriableError: `METADATA_UNREACHABLE`: the object store did not answer.
    """
    return load_folder(open_folder(metadata_dir, environ), environ, keep_rows=keep_rows)


def unread(folder: Folder) -> Iterator[Problem]:
    """A warning for each file that looks like metadata but is not read."""
    names = folder.names("")
    for below, endings in ((ROWS, ENDINGS), (KEYS, KEYS_ENDINGS)):
        for name in files.passed_over([name for name in names if name.startswith(f"{below}/")], endings):
            yield _not_read(name, _UNREAD_REMEDY)
    for name, remedy in files.misplaced(names, _KNOWN):
        yield _not_read(name, remedy)


def _not_read(name: str, remedy: str) -> Problem:
    message = "looks like metadata, but is not read"
    return Problem(code=FILE_NOT_READ, message=message, remedy=remedy, file=show_name(name))


def load_folder(folder: Folder, environ: Mapping[str, str], *, keep_rows: bool = False) -> LoadedMetadata:
    """`load` for a folder that is open already."""
    settings = read_settings(folder, environ)
    files = tuple(table_files(folder, settings))
    rows = [row for file in files for row in file.rows]
    identities = [identity for row in rows if (identity := row.identity) is not None]
    keys = read_keys(folder).for_tables(identities)
    assessed = partial(assess, keys=keys, tiers=settings.tiers, sources=settings.sources)
    sound, row_problems = _assess(rows, assessed, settings.roots)
    names = _Names(TableNames(identities), frozenset(_written(files)))
    problems_beside = _of_each_other(sound, names, settings.catalogs)
    row_problems += _dependencies_of_others(rows, sound, names)
    problems = (*keys.problems, *(p for file in files for p in file.problems), *row_problems)
    problems += tuple(problem for table_problems in problems_beside.values() for problem in table_problems)
    tables = (item.spec for table, item in sound.items() if table not in problems_beside)
    written = {name.lower() for name in names.written}
    written |= {name.lower() for one in identities for name in (one.table, f"{one.source}:{one.name_in_source}")}
    return LoadedMetadata(
        **vars(settings),
        tables=tuple(sorted(tables, key=lambda spec: spec.table)),
        problems=tuple(sorted(problems, key=lambda problem: (problem.file, problem.line or 0, problem.column or 0))),
        rows={item.spec.table: item.row for item in sound.values()} if keep_rows else {},
        named=frozenset(_named(files) if any(source.proposes for source in settings.sources.values()) else ()),
        unused_keys=tuple(
            keys.entries[table].unused(names.tables.near(table)) for table in sorted(keys.entries.keys() - written)
        ),
    )


def _named(files: Iterable[TableFile]) -> Iterator[tuple[str, str]]:
    """See `LoadedMetadata.named`."""
    for file in files:
        for row in file.rows:
            if row.identity is not None:
                yield row.identity.source, row.identity.name_in_source.lower()
            elif isinstance(row.table, str):
                yield "", row.table.lower()
        yield from (("", table.lower()) for table in file.refused)


@dataclass(frozen=True)
class _Names:
    """Names of tables: of valid rows, and as written in any row.

    An invalid row must not invalidate its dependents.
    """

    tables: TableNames
    written: frozenset[str]


def _written(files: Iterable[TableFile]) -> Iterator[str]:
    for file in files:
        yield from (row.table for row in file.rows if isinstance(row.table, str))
        yield from file.refused


def _assess(
    rows: Sequence[Row], assessed: Callable[[Row], TableSpec | tuple[Problem, ...]], roots: Roots
) -> tuple[dict[str, NamedRow], list[Problem]]:
    """Valid rows by table in lower case, and problems of the others. An invalid row does not take its table's name."""
    taken = TakenNames(roots)
    problems: list[Problem] = []
    for row in rows:
        spec = assessed(row)
        if isinstance(spec, tuple):
            problems += spec
        elif (problem := taken.take(NamedRow(row, spec))) is not None:
            problems.append(_placed(problem, row))
    return taken.by_target, problems


def _of_each_other(
    sound: dict[str, NamedRow], names: _Names, catalogs: Mapping[str, CatalogSpec]
) -> dict[str, list[Problem]]:
    """Problems of valid rows with each other, by table in lower case; what names another row gets its target."""
    problems: defaultdict[str, list[SpecProblem]] = defaultdict(list)
    for table, item in sound.items():
        spec = item.spec
        if not spec.depends_on and spec.heartbeat is None:
            continue
        targets = _targets(spec.depends_on, spec.source, names)
        depends_on = tuple(one for one in targets if isinstance(one, str))
        if spec.heartbeat is not None:
            targets.append(heartbeat := _target(spec.heartbeat, spec.source, names, ("heartbeat",)))
            spec = replace(spec, heartbeat=heartbeat if isinstance(heartbeat, str) else None)
        sound[table] = replace(item, spec=replace(spec, depends_on=depends_on))
        problems[table] += [one for one in targets if isinstance(one, SpecProblem)]
    specs = [item.spec for item in sound.values()]
    for table, problem in cyclic(specs).items():
        problems[table.lower()].append(problem)
    for spec, problem in check_rows(specs, catalogs):
        problems[spec.table.lower()].append(problem)
    return {table: [_placed(one, sound[table].row) for one in found] for table, found in problems.items() if found}


def _targets(depends_on: Iterable[str], source: str, names: _Names) -> list[str | SpecProblem]:
    return [_target(table, source, names, ("depends_on", i)) for i, table in enumerate(depends_on)]


def _dependencies_of_others(rows: Sequence[Row], sound: Mapping[str, NamedRow], names: _Names) -> Iterator[Problem]:
    """Further problems of invalid rows, so that all problems of a row are reported together.

    Skips rows with values that must not be displayed, such as secrets.
    """
    valid = {id(item.row) for item in sound.values()}
    for row in rows:
        if id(row) in valid:
            continue
        listed = one_or_more(row.layer.values.get("depends_on"))
        if not isinstance(listed, list) or screen(row.layer.values):
            continue
        if not all(isinstance(name, str) for name in listed):
            continue
        source = row.identity.source if row.identity is not None else ""
        for problem in _targets(listed, source, names):
            if not isinstance(problem, str):
                yield _placed(problem, row)


def _placed(problem: SpecProblem, row: Row) -> Problem:
    return report(problem, row.layers, row.shown)
