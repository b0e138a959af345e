"""The DAG files as Airflow's own DAG bag reads and serialises them."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def parse(folder: Path = ROOT / "dags") -> Any:
    """A DagBag: `dags` by id and `import_errors` by file."""
    for module in ("airflow.dag_processing.dagbag", "airflow.models.dagbag"):
        bag = getattr(importlib.import_module(module), "DagBag", None)
        if bag is not None:
            return bag(str(folder))
    raise ImportError("no DagBag")


def serialised(dag: Any) -> str:
    """The DAG's JSON as Airflow stores it."""
    module = importlib.import_module("airflow.serialization.serialized_objects")
    codec = getattr(module, "DagSerialization", None) or module.SerializedDAG
    return json.dumps(codec.to_dict(dag))


if __name__ == "__main__":
    found = parse()
    sys.stdout.write(json.dumps({dag_id: serialised(dag) for dag_id, dag in found.dags.items()}))
