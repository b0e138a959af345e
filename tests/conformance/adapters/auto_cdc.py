"""AUTO CDC of Spark's declarative pipelines (4.2): a flow with SCD type 1, updated once for each arrival.

It needs a table with row-level operations, which Delta 4.4.0 and no release of Iceberg has for Spark 4.2; it therefore
runs on the table in memory by which Spark tests AUTO CDC itself, of the JAR that `CATALYST_TESTS_JAR` names:

    CATALYST_TESTS_JAR=spark-catalyst_2.13-4.2.0-tests.jar auto_cdc/bin/python -m tests.conformance --adapter auto_cdc
"""

from __future__ import annotations

import os
from functools import cache
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import pipelines as dp
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run
from pyspark.sql import DataFrame, SparkSession

from tests.conformance.adapters.usual_job import every, table_of, text_of
from tests.conformance.delivery import Arrival, Delivery, Outcome
from tests.conformance.judging import NO_CODE

_ORDER, _DELETED = "change_order", "is_deleted"
_CATALOGS = "org.apache.spark.sql.connector.catalog"
_SETTINGS = {
    "spark.driver.host": "localhost",
    "spark.sql.catalog.memory": f"{_CATALOGS}.SharedTablesInMemoryRowLevelOperationTableCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
_numbers = count()


def play(delivery: Delivery, folder: Path) -> Outcome:
    """An update of the pipeline for each arrival. A file that can't be read ends it, as it would on a schedule."""
    table, refused = f"memory.default.t{next(_numbers)}", ""
    (folder / "changes").mkdir()
    for number, arrival in enumerate(delivery.arrivals):
        try:
            _write(delivery, arrival, folder / "changes" / f"{number:04d}.parquet")
            _update(delivery, folder, table)
            refused = ""
        except Exception:  # noqa: BLE001 - a job that fails says so
            refused = NO_CODE
    if not _spark().catalog.tableExists(table):
        return Outcome(None, {}, refused)
    names = [f"`{column.name}`" for column in delivery.columns]
    _spark().table(table).selectExpr(*names).write.parquet(str(folder / "rows"))
    return Outcome(tuple(pq.read_table(folder / "rows").to_pylist()), {}, refused)


def _write(delivery: Delivery, arrival: Arrival, path: Path) -> None:
    """All changes of an arrival, with the place of each: order, file, row."""
    reads = list(every(delivery, arrival))
    rows = table_of(delivery, reads).rename_columns([*(column.name for column in delivery.columns), _DELETED])
    order = [f"{text_of(read)}/{path.stem}/{row:08d}" for row, read in enumerate(reads)]
    pq.write_table(rows.append_column(_ORDER, pa.array(order, pa.string())), path)


def _update(delivery: Delivery, folder: Path, table: str) -> None:
    """What `spark-pipelines run` does, in a session that is started once."""
    spark, source, landed = _spark(), f"changes_of_{table.rpartition('.')[2]}", str(folder / "changes")
    schema = spark.read.parquet(landed).schema
    graph = create_dataflow_graph(spark, None, None, {})
    registry = SparkConnectGraphElementRegistry(spark, graph)
    analysis = add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None)
    with analysis, graph_element_registration_context(registry):

        @dp.temporary_view(name=source)
        def changes() -> DataFrame:
            return spark.readStream.schema(schema).parquet(landed)

        dp.create_streaming_table(table)
        dp.create_auto_cdc_flow(
            target=table,
            source=source,
            keys=list(delivery.keys),
            sequence_by=_ORDER,
            apply_as_deletes=_DELETED,
            column_list=[column.name for column in delivery.columns],
            stored_as_scd_type=1,
        )
    handle_pipeline_events(start_run(spark, graph, None, False, None, False, (folder / "storage").as_uri()))


@cache
def _spark() -> SparkSession:
    builder = SparkSession.builder.remote("local[1]")
    builder = builder.config("spark.driver.extraClassPath", os.environ["CATALYST_TESTS_JAR"])
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
