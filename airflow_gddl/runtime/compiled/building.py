"""Compiles metadata into documents.

Separate from the keeper, which imports neither pydantic nor a YAML reader unless it rebuilds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_gddl.contract.codes import DOCUMENT_INVALID, FILE_TOO_LARGE, FILE_UNREADABLE
from airflow_gddl.contract.source_access import of_tables
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.metadata.problems import Problem, grouped
from airflow_gddl.runtime.compiled.documents import (
    Compiled,
    Dependency,
    Directory,
    PipelineDocument,
    PlacementDocument,
)
from airflow_gddl.runtime.compiled.proposals import place_of
from airflow_gddl.runtime.table_directory import table_rows
from airflow_gddl.topology.pipelines import Pipeline, arrange
from airflow_gddl.topology.placement import Placement

_UNREAD = {DOCUMENT_INVALID, FILE_TOO_LARGE, FILE_UNREADABLE}
_SHOWN = 5
_OTHERS = 50


def compile_metadata(
    loaded: LoadedMetadata, before: Iterable[TableSpec], placed: Placement, at: float, tag: str | None, path: str
) -> Compiled:
    """Documents of every pipeline.

    Args:
        placed: placement of the tables by the lake.
        at: the current time, seconds since the epoch.
        tag: tag of the placement object at `path`; None: there is none.
        before: the rows of the last good ones; called only when a file can't be read at all, so that its tables are
            kept.
    """
    carried = tuple(_carried(loaded, before))
    specs = sorted((*loaded.tables, *carried), key=lambda spec: spec.table)
    arrangement = arrange(specs, loaded.tiers, loaded.dag_prefix, placed, at)
    made = arrangement.pipelines
    by_table = {table: pipeline.dag_id for pipeline in made for table in pipeline.tables}
    by_name = {spec.table: spec for spec in specs}
    return Compiled(
        prefix=loaded.dag_prefix,
        documents=tuple(_document(pipeline, loaded, by_name, by_table) for pipeline in (*made, *arrangement.retired)),
        directory=_directory(loaded, specs, made),
        problems=tuple(_lines(loaded.problems)),
        carried=tuple(spec.table for spec in carried),
        placed=PlacementDocument(
            path=path,
            placement=arrangement.placement,
            tag=tag,
            is_kept=tag is not None and arrangement.placement == placed,
            roots=loaded.roots,
            aws_conn_id=loaded.aws_conn_id,
        ),
    )


def _directory(loaded: LoadedMetadata, specs: Sequence[TableSpec], made: Sequence[Pipeline]) -> Directory:
    rows = table_rows(specs, made, loaded.problems)
    of_rows = {line for row in rows for line in row.problems}
    others = tuple(line for line in map(str, loaded.problems) if line not in of_rows)
    return Directory(
        roots=loaded.roots,
        rows=rows,
        aws_conn_id=loaded.aws_conn_id,
        problems=others[:_OTHERS],
        proposals=place_of(loaded.roots.lake, loaded.dag_prefix) if loaded.proposing else "",
    )


def _lines(problems: Iterable[Problem]) -> Iterator[str]:
    """One line for each problem; of many equal ones in rows (see `grouped`), a row or file, the first few in full."""
    alike: defaultdict[tuple[str, str | None, str], list[tuple[Problem, str]]] = defaultdict(list)
    for problem, more in grouped(problems):
        alike[problem.file, problem.table, problem.code].append((problem, more))
    for (file, table, code), group in alike.items():
        yield from (f"{problem} {more}".rstrip() for problem, more in group[:_SHOWN])
        if len(group) > _SHOWN:
            lines = dict.fromkeys(str(problem.line) for problem, _ in group[_SHOWN:] if problem.line is not None)
            where = f" in lines {', '.join(lines)}" if lines else ""
            yield f"{file}: [{code}] {table or ''} and {len(group) - _SHOWN} more of these{where}."


def _carried(loaded: LoadedMetadata, before: Iterable[TableSpec]) -> Iterator[TableSpec]:
    if not any(problem.code in _UNREAD and problem.table is None for problem in loaded.problems):
        return
    known = {spec.table.lower() for spec in loaded.tables}
    for spec in before:
        if spec.table.lower() not in known and spec.size in loaded.tiers:
            known.add(spec.table.lower())  # one that was in a retired pipeline, too
            yield spec


def _document(
    pipeline: Pipeline, loaded: LoadedMetadata, by_name: Mapping[str, TableSpec], by_table: Mapping[str, str]
) -> PipelineDocument:
    specs = tuple(by_name[table] for table in pipeline.tables)
    others = sorted({name for spec in specs for name in spec.depends_on}.difference(pipeline.tables))
    beats = {by_table[spec.heartbeat] for spec in specs if spec.heartbeat is not None and spec.heartbeat in by_table}
    return PipelineDocument(
        pipeline=pipeline,
        roots=loaded.roots,
        runner=loaded.runner,
        aws_conn_id=loaded.aws_conn_id,
        access=of_tables(loaded.access, specs),
        runner_settings=loaded.runners.get(loaded.runner, {}),
        specs=specs,
        tiers={spec.size: loaded.tiers[spec.size] for spec in specs},
        catalogs={name: one for name, one in loaded.catalogs.items() if any(s.catalog == name for s in specs)},
        dependencies=tuple(
            Dependency(dag_id=by_table[name], spec=by_name[name]) for name in others if name in by_table
        ),
        unmet=tuple(name for name in others if name not in by_table),
        heartbeats=tuple(sorted(beats - {pipeline.dag_id})),
    )
