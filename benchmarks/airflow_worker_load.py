"""What Airflow reads of our files, timed in a process of its own; prints one JSON line.

`load FILE DAG_ID`: a worker's load of one task's DAG, as its task runner does it, which has imported Airflow before:
the milliseconds, and which DAGs there are then. `read FOLDER`: the pipelines of a metadata folder, as a parse reads
them: the milliseconds of a read in the middle of several, their tables, and what a loop needs to make the same DAGs.
`parse FILE`: a parse of a whole DAG file, without what Airflow does with its DAGs: seconds of CPU, and which DAGs there
are.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from pathlib import Path

_READS = 9


def load(file: Path, dag_id: str) -> dict[str, object]:
    """In a fresh process: modules of ours that the file imports count, and the garbage of Airflow's own do not."""
    from airflow.dag_processing.dagbag import BundleDagBag  # noqa: PLC0415 - `read` must not import Airflow's half
    from airflow.sdk.execution_time.task_runner import _airflow_parsing_context_manager  # noqa: PLC0415 - the same

    gc.collect()  # due after Airflow's imports: it would fall into any file, however small
    begun = time.perf_counter()
    with _airflow_parsing_context_manager(dag_id=dag_id, task_id="landed"):
        bag = BundleDagBag(
            dag_folder=str(file), safe_mode=False, load_op_links=False, bundle_path=file.parent, bundle_name="bench"
        )
    spent = time.perf_counter() - begun
    return {"milliseconds": spent * 1000, "dags": sorted(bag.dags)}


def parse(file: Path) -> dict[str, object]:
    """In a fresh process, as the DAG processor forks one that has imported Airflow."""
    from airflow.dag_processing.dagbag import BundleDagBag  # noqa: PLC0415 - `read` must not import Airflow's half

    gc.collect()
    begun = time.process_time()
    bag = BundleDagBag(
        dag_folder=str(file), safe_mode=False, load_op_links=False, bundle_path=file.parent, bundle_name="bench"
    )
    spent = time.process_time() - begun
    return {"cpu_seconds": spent, "dags": sorted(bag.dags), "errors": bag.import_errors}


def read(folder: str) -> dict[str, object]:
    """Compiled metadata: the first read makes sure that it is there, and is not timed."""
    from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed

    found = configuration.compiled_metadata(folder).pipelines()
    spent = []
    for _ in range(_READS):
        begun = time.perf_counter()
        configuration.compiled_metadata(folder).pipelines()
        spent.append(time.perf_counter() - begun)
    documents = [configuration.compiled_metadata(folder).pipeline(pipeline.dag_id) for pipeline in found]
    tables = [table for document in documents if document is not None for table in document.pipeline.tables]
    from airflow_gddl.dags.factory import documentation  # noqa: PLC0415 - the same

    described = [
        {"dag_id": one.dag_id, "tags": one.tags, "pool": one.pool, "doc": documentation(one),
         "assets": one.tables if one.view == "table" else ()}
        for one in found
    ]  # fmt: skip
    return {"milliseconds": statistics.median(spent) * 1000, "dags": described, "tables": tables}


if __name__ == "__main__":
    of = {"load": lambda: load(Path(sys.argv[2]), sys.argv[3]), "parse": lambda: parse(Path(sys.argv[2]))}
    answer = of.get(sys.argv[1], lambda: read(sys.argv[2]))()
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
