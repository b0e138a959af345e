"""AUTO CDC of open Spark in `peers.py`: a declarative pipeline, updated once for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyspark
from peers_tool import PeerOrder, run_tool
from pyspark import pipelines as dp
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run
from pyspark.sql import DataFrame, SparkSession
from workload import KEY, OPERATION, SCHEMA, SEQUENCE, Folders

_COLUMNS = (
    f"{OPERATION} string, {KEY} long, customer string, status string, quantity int, amount decimal(12,2), "
    f"price double, active boolean, updated_at timestamp, note string, {SEQUENCE} string"
)


class AutoCdc:
    """What `spark-pipelines run` does with a table of one AUTO CDC flow, in a session that is started once."""

    def __init__(self, order: PeerOrder) -> None:
        self._order = order
        self.versions = (f"pyspark {pyspark.__version__}", _delta_of(order.class_path))

    def start(self, folders: Folders) -> None:
        settings = {
            "spark.driver.memory": self._order.memory,
            "spark.driver.extraClassPath": self._order.class_path,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.shuffle.partitions": str(2 * self._order.cores),
            "spark.sql.warehouse.dir": str(folders.lake(self._order.tool)),
            "spark.ui.enabled": "false",
        }
        builder = SparkSession.builder.remote(f"local[{self._order.cores}]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self._spark = builder.getOrCreate()

    def load(self, folders: Folders) -> None:
        self._update(folders)

    def apply(self, folders: Folders, files: Sequence[Path]) -> None:  # noqa: ARG002 - it finds files itself
        self._update(folders)

    def _update(self, folders: Folders) -> None:
        table, source = self._table(folders), f"{self._table(folders)}_changes"
        graph = create_dataflow_graph(self._spark, None, None, {})
        registry = SparkConnectGraphElementRegistry(self._spark, graph)
        analysis = add_pipeline_analysis_context(spark=self._spark, dataflow_graph_id=graph, flow_name=None)
        with analysis, graph_element_registration_context(registry):

            @dp.temporary_view(name=source)
            def changes() -> DataFrame:
                rows = self._spark.readStream.schema(_COLUMNS).parquet(str(folders.landed))
                return rows.selectExpr("*", "_metadata.file_name AS from_file", "_metadata.row_index AS row_in_file")

            dp.create_streaming_table(table, format="delta")
            dp.create_auto_cdc_flow(
                target=table,
                source=source,
                keys=[KEY],
                sequence_by=f"struct({SEQUENCE}, from_file, row_in_file)",
                apply_as_deletes=f"coalesce({OPERATION}, 'I') = 'D'",
                column_list=SCHEMA.names,
                stored_as_scd_type=1,
            )
        storage = f"{folders.lake(self._order.tool).as_uri()}/storage"
        handle_pipeline_events(start_run(self._spark, graph, None, False, None, False, storage))

    def export(self, folders: Folders) -> None:
        rows = self._spark.table(self._table(folders)).select(*SCHEMA.names)
        rows.write.parquet(str(folders.exported(self._order.tool)))

    @staticmethod
    def _table(folders: Folders) -> str:
        return folders.root.name.replace("-", "_")


def _delta_of(class_path: str) -> str:
    """Name and version of the JAR of Delta."""
    found = [Path(p).stem for p in class_path.split(":") if "delta-spark" in p]
    return found[0] if found else "no Delta"


if __name__ == "__main__":
    run_tool(AutoCdc)
