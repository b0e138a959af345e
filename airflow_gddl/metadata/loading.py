"""The metadata folder as one frozen value: what may run, and what is wrong with the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_gddl.contract.spec import Roots, TableSpec, TierSpec
from airflow_gddl.contract.spec_problem import SpecProblem, spec_problem
from airflow_gddl.metadata import dependencies
from airflow_gddl.metadata.folder import Folder, open_folder
from airflow_gddl.metadata.keys import Keys, read_keys
from airflow_gddl.metadata.layers import report
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.metadata.rows import assess
from airflow_gddl.metadata.screen import screen
from airflow_gddl.metadata.settings import read_settings
from airflow_gddl.metadata.table_files import Row, TableFile, table_files
from airflow_gddl.metadata.values import one_or_more


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """All that the metadata says.

    Attributes:
        roots: absolute.
        runner: name of the runner that jobs go to.
        tiers: every tier by name, defaults filled in.
        runners: settings by runner, as written; checked by the runner itself.
        tables: the sound rows, sorted by `table`. `depends_on` may name a table whose own row is refused.
        problems: in the order of files and lines; a row that has one is not in `tables`.
        unused_keys: tables that keys files name and no row does, sorted.
        aws_conn_id: Airflow connection that reaches S3; null: the environment, or the machine's role.
        dag_prefix: begins the ids of the DAGs and the names of the tiers' own pools; may be empty.
    """

    roots: Roots
    runner: str
    tiers: Mapping[str, TierSpec]
    runners: Mapping[str, Mapping[str, Any]]
    tables: tuple[TableSpec, ...]
    problems: tuple[Problem, ...]
    unused_keys: tuple[str, ...] = ()
    aws_conn_id: str | None = None
    dag_prefix: str = ""


def load(metadata_dir: str | Path, environ: Mapping[str, str]) -> Catalog:
    """Read a metadata folder: a local path, or an `s3://` URL.

    Args:
        environ: names that start with `GDDL_` override settings; `AWS_…` tell how S3 is reached.

    Raises:
        MetadataError: `SETTINGS_INVALID`: `gddl.yaml` or a variable is wrong, so nothing can run.
        RetriableError: `METADATA_UNREACHABLE`: the object store did not answer.
    """
    return load_folder(open_folder(metadata_dir, environ), environ)


def load_folder(folder: Folder, environ: Mapping[str, str]) -> Catalog:
    """`load` for a folder that is open already."""
    settings = read_settings(folder, environ)
    keys = read_keys(folder)
    files = tuple(table_files(folder, settings))
    names = _names(files)
    rows = [row for file in files for row in file.rows]
    sound, row_problems = _assess(rows, keys, settings.tiers)
    dependency_problems = _dependencies(sound, names)
    row_problems += _dependencies_of_others(rows, sound, names)
    problems = (*keys.problems, *(p for file in files for p in file.problems), *row_problems)
    problems += tuple(problem for found in dependency_problems.values() for problem in found)
    tables = (item.spec for table, item in sound.items() if table not in dependency_problems)
    written = {name.lower() for name in names}
    return Catalog(
        roots=settings.roots,
        runner=settings.runner,
        aws_conn_id=settings.aws_conn_id,
        dag_prefix=settings.dag_prefix,
        tiers=settings.tiers,
        runners=settings.runners,
        tables=tuple(sorted(tables, key=lambda spec: spec.table)),
        problems=tuple(sorted(problems, key=lambda problem: (problem.file, problem.line or 0, problem.column or 0))),
        unused_keys=tuple(sorted(e.table for table, e in keys.entries.items() if table not in written)),
    )


@dataclass(frozen=True)
class _Sound:
    """A row that is right by itself, and its spec."""

    row: Row
    spec: TableSpec


def _names(files: Iterable[TableFile]) -> frozenset[str]:
    """Tables that rows name, sound or not: a bad row must not take those along that depend on it."""
    written = (row.table for file in files for row in file.rows)
    refused = (table for file in files for table in file.refused)
    return frozenset(table for table in (*written, *refused) if isinstance(table, str))


def _assess(rows: Sequence[Row], keys: Keys, tiers: Collection[str]) -> tuple[dict[str, _Sound], list[Problem]]:
    """Sound rows by table in lower case, and the problems of the others. A bad row does not take its table's name."""
    sound: dict[str, _Sound] = {}
    problems: list[Problem] = []
    for row in rows:
        spec = assess(row, keys, tiers)
        if isinstance(spec, tuple):
            problems += spec
        elif (first := sound.get(spec.table.lower())) is not None:
            problems.append(_placed(_duplicate(spec, first), row, spec))
        else:
            sound[spec.table.lower()] = _Sound(row, spec)
    return sound, problems


def _duplicate(spec: TableSpec, first: _Sound) -> SpecProblem:
    position = first.row.own.locate(("table",))
    place = first.row.own.file if position is None else f"{first.row.own.file}:{position.line}"
    message = f"this table has a row already, at {place} (case does not count)"
    return spec_problem("TABLE_DUPLICATE", ("table",), spec.table, message, "remove one of the two rows")


def _dependencies(sound: Mapping[str, _Sound], names: frozenset[str]) -> dict[str, list[Problem]]:
    """Problems by table in lower case."""
    folded = _folded(names)
    circles = dependencies.circular([item.spec for item in sound.values()])
    problems: dict[str, list[Problem]] = {}
    for table, item in sound.items():
        found = list(dependencies.unknown(item.spec.depends_on, names, folded))
        found += [circles[item.spec.table]] if item.spec.table in circles else []
        if found:
            problems[table] = [_placed(problem, item.row, item.spec) for problem in found]
    return problems


def _dependencies_of_others(
    rows: Sequence[Row], sound: Mapping[str, _Sound], names: frozenset[str]
) -> Iterator[Problem]:
    """The same problems of rows that have others, so that all of a row are reported at once.

    Not of rows with values that may not be shown, such as secrets.
    """
    folded, known = _folded(names), {id(item.row) for item in sound.values()}
    for row in rows:
        listed = one_or_more(row.own.values.get("depends_on"))
        if id(row) in known or not isinstance(listed, list) or screen(row.own.values):
            continue
        if not all(isinstance(name, str) for name in listed):
            continue
        for problem in dependencies.unknown(listed, names, folded):
            yield report(problem, (row.own, *row.below), row.table)


def _folded(names: Iterable[str]) -> dict[str, str]:
    return {name.lower(): name for name in sorted(names)}


def _placed(problem: SpecProblem, row: Row, spec: TableSpec) -> Problem:
    return report(problem, (row.own, *row.below), spec.table)
