"""The DAG files as Airflow's own DAG bag reads and serialises them."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def parse(folder: Path = ROOT / "dags") -> Any:
    """A DagBag: `dags` by id and `import_errors` by file."""
    for module in ("airflow.dag_processing.dagbag", "airflow.models.dagbag"):
        with contextlib.suppress(ImportError, AttributeError):
            bag = importlib.import_module(module).DagBag
            break
    return bag(str(folder))


def serialised(dag: Any) -> str:
    """The DAG as JSON, as Airflow compares it with the version it has."""
    codec = _codec()
    # Airflow itself iterates over sets of field names; it sorts the keys before it compares two versions.
    return json.dumps(codec.to_dict(dag), sort_keys=True)


def kept(dag: Any) -> Any:
    """The DAG as the scheduler reads it."""
    return _codec().from_dict(json.loads(serialised(dag)))


def _codec() -> Any:
    module = importlib.import_module("airflow.serialization.serialized_objects")
    return getattr(module, "DagSerialization", None) or module.SerializedDAG


if __name__ == "__main__":
    found = parse()
    sys.stdout.write(json.dumps({dag_id: serialised(dag) for dag_id, dag in found.dags.items()}))
