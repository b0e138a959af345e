"""OpenLineage events of tasks that load: from landing folders or source tables to the tables of the lake.

Imported only by the OpenLineage hook after a task has ended, since it needs the provider's packages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    input_statistics_input_dataset,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from airflow_gddl.contract import connections
from airflow_gddl.contract.codes import TRUNCATE_APPLIED
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import DatasetName, LandingFolder, Layout
from airflow_gddl.contract.result import JobResult, ResultColumn
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from airflow_gddl.reporting.results import LoadedTables, Logger

MOST_TABLES = 200
MOST_COLUMNS = 2000
"""Columns that the outputs of one event describe: some 700 kB of JSON."""
# SQLAlchemy's name of a database to its scheme and port in OpenLineage's names of datasets.
_SOURCES = {
    "postgresql": ("postgres", 5432),
    "mysql": ("mysql", 3306),
    "mariadb": ("mysql", 3306),
    "mssql": ("mssql", 1433),
    "oracle": ("oracle", 1521),
}
_STATES = lifecycle_state_change_dataset.LifecycleStateChange


def lineage_of(loaded: LoadedTables | None, log: Logger) -> OperatorLineage[Any, Any]:
    """Lineage of the tables that the task has loaded, by name; no datasets if it loaded none.

    Args:
        log: logs how much the event limits leave out.
    """
    lineage: OperatorLineage[Any, Any] = OperatorLineage()
    if loaded is None:
        return lineage
    tables, room, bare = sorted(loaded.sums), MOST_COLUMNS, []
    for table in tables[:MOST_TABLES]:
        spec, result = loaded.specs[table], loaded.sums[table]
        layout, sources = Layout.of(loaded.roots, spec), _sources(spec, loaded)
        written = _written(spec, result, layout)
        columns = [  # no file has the column that names a row's source in a table with shards
            replace(column, sources=()) if spec.shards and column.name == SHARD_COLUMN else column
            for column in result.columns
        ]
        described = len(columns) * len(written) * len(sources)  # each facet names a column once for each source
        if described > room:
            columns, described = [], 0
            bare.append(table)
        room -= described
        lineage.inputs += _inputs(result, sources)
        facets = {layout.replica: _replica_facets(result, columns)}
        of_columns = _column_facets(columns, sources)
        lineage.outputs += [
            _output(path, rows, {**of_columns, **facets.get(path, {})}) for path, rows in written.items()
        ]
        if result.columns_left_out:
            log.warning("OpenLineage: %s lacks %d of its columns", table, result.columns_left_out)
    if bare:
        log.warning("OpenLineage: %d tables are sent without columns: %s", len(bare), ", ".join(bare))
    if omitted := tables[MOST_TABLES:]:
        log.warning("OpenLineage: %d of %d tables are not sent: %s", len(omitted), len(tables), ", ".join(omitted))
    return lineage


def source_table(spec: TableSpec, loaded: LoadedTables) -> DatasetName | None:
    """The table in the source database, where the row names a connection that the environment holds; else null."""
    connection = spec.options.get("verify_connection")
    if not connection:
        return None
    try:
        import sqlalchemy  # noqa: PLC0415 - workers that hold the Task SDK alone lack it

        url = connections.lent_url_of(sqlalchemy, str(connection), loaded.environ)
    except (GddlError, ImportError):
        return None
    known = _SOURCES.get(url.get_backend_name())
    if known is None or not url.host:
        return None
    scheme, port = known
    namespace = f"{scheme}://{url.host}:{url.port or port}"
    if scheme == "mysql":  # whose databases are schemas
        return DatasetName(namespace=namespace, name=spec.name_in_source, is_table=True)
    database = url.database or url.query.get("service_name")
    name = f"{database}.{spec.name_in_source}"
    return DatasetName(namespace=namespace, name=name, is_table=True) if database else None


def _sources(spec: TableSpec, loaded: LoadedTables) -> list[DatasetName]:
    """What a table is made of: its landing folder, or the source table; of a table with shards all landing folders."""
    table = None if spec.shards else source_table(spec, loaded)
    return [table] if table else [DatasetName.of(folder.path) for folder in LandingFolder.all_of(loaded.roots, spec)]


def _inputs(result: JobResult, sources: Sequence[DatasetName]) -> list[Dataset]:
    """With counts where they belong to one folder: a result doesn't count by source."""
    quality = _quality_facets(result)
    if len(sources) > 1 or sources[0].is_table:
        return [InputDataset(namespace=one.namespace, name=one.name, inputFacets={**quality}) for one in sources]
    (landing,) = sources
    read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=result.rows_read, size=result.bytes_read, fileCount=result.files
    )
    facets = {"inputStatistics": read, **quality}
    return [InputDataset(namespace=landing.namespace, name=landing.name, inputFacets=facets)]


def _quality_facets(result: JobResult) -> dict[str, Any]:
    """`dataQualityAssertions`: whether all rows of the run met each expectation."""
    made = data_quality_assertions_dataset
    outcomes = [
        made.Assertion(assertion=one.name, success=not one.failed) for one in result.expectations if one.checked
    ]
    return {"dataQualityAssertions": made.DataQualityAssertionsDatasetFacet(assertions=outcomes)} if outcomes else {}


def _written(spec: TableSpec, result: JobResult, layout: Layout) -> dict[str, int | None]:
    """Replica, and the change table and history where they are written, with their rows; None: not counted."""
    paths: dict[str, int | None] = {layout.replica: result.main.inserted + result.main.updated}
    paths |= {layout.changes: result.changes_written} if result.changes_written else {}
    paths |= {layout.history: None} if spec.history and spec.keys else {}
    return paths


def _output(path: str, rows: int | None, facets: dict[str, DatasetFacet]) -> OutputDataset:
    where = DatasetName.of(path)
    dataset = OutputDataset(namespace=where.namespace, name=where.name, facets=facets)
    if rows is not None:
        written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
        dataset.outputFacets = {"outputStatistics": written}
    return dataset


def _replica_facets(result: JobResult, columns: Sequence[ResultColumn]) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name=column.name, type=column.type) for column in columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    if result.version is not None:
        version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(result.version))
        facets["version"] = version
    state = _state_of(result)
    if state is not None:
        change = lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(lifecycleStateChange=state)
        facets["lifecycleStateChange"] = change
    return facets


def _state_of(result: JobResult) -> Any:
    """What a run made of the table as a whole; None: it has changed rows."""
    if result.mode != "incremental":
        return _STATES.CREATE if result.mode == "initial" else _STATES.OVERWRITE
    truncated = any(warning.code == TRUNCATE_APPLIED for warning in result.warnings)
    return _STATES.TRUNCATE if truncated else None


def _column_facets(columns: Sequence[ResultColumn], sources: Sequence[DatasetName]) -> dict[str, DatasetFacet]:
    """`columnLineage` of the columns that come from the sources; none where no columns are known."""
    fields = {column.name: _field(column, sources) for column in columns if column.sources}
    return {"columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields)} if fields else {}


def _field(column: ResultColumn, sources: Sequence[DatasetName]) -> column_lineage_dataset.Fields:
    how = column_lineage_dataset.Transformation(
        type="DIRECT", subtype="TRANSFORMATION" if column.masked else "IDENTITY", masking=column.masked
    )
    fields = [
        column_lineage_dataset.InputField(
            namespace=source.namespace, name=source.name, field=name, transformations=[how]
        )
        for source in sources
        for name in column.sources
    ]
    return column_lineage_dataset.Fields(inputFields=fields)
