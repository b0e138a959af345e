"""Many tables, three times over: as metadata of this package, as a loop in a DAG file, as YAML of dag-factory.

The loop and the YAML give every table a DAG of four tasks with a cron schedule, the tasks empty commands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_gddl.contract.spec import AirflowView

_SETTINGS = "landing: {root}/landing\nlake: {root}/lake\ndefaults: {{airflow: {view}}}\n"
_DAG_FILE = """\
from airflow_gddl.dags.factory import build_dags

globals().update(build_dags({metadata!r}))
"""
_PROBLEMS_FILE = """\
from airflow_gddl.dags.factory import raise_problems

raise_problems({metadata!r})  # no airflow DAG
"""
_LOOP = """\
from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

for n in range({tables}):
    with DAG(
        f"table_{{n}}",
        schedule=f"{{n % 60}} * * * *",
        start_date=datetime(2024, 1, 1),
        catchup=False,
        max_active_runs=1,
        tags=["loop"],
    ) as dag:
        landed = BashOperator(task_id="landed", bash_command=f"true {{n}}")
        first = BashOperator(task_id="initial_load", bash_command=f"true {{n}}")
        increments = BashOperator(task_id="incremental_load", bash_command=f"true {{n}}")
        landed >> first >> increments >> BashOperator(task_id="publish", bash_command=f"true {{n}}")
    globals()[dag.dag_id] = dag
"""
_BY_HAND = """\
import json
from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset

from airflow_gddl.operators.jobs import GddlIncrementalLoadOperator, GddlInitialLoadOperator
from airflow_gddl.sensors.tables import GddlTablesSensor

for one in json.loads(Path({listed!r}).read_text()):
    with DAG(
        one["dag_id"],
        schedule="@hourly",
        start_date=datetime(2024, 1, 1),
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=timedelta(hours=5),
        tags=one["tags"],
        doc_md=one["doc"],
    ) as dag:
        common = {{"pipeline": one["dag_id"], "metadata": {metadata!r}, "owner": "airflow", "retries": 1}}
        common["execution_timeout"] = timedelta(hours=2)
        loads = {{**common, "pool": one["pool"], "outlets": [Asset(name) for name in one["assets"]]}}
        GddlTablesSensor(task_id="landed", deferrable=True, **common) >> [
            GddlInitialLoadOperator(task_id="initial_load", deferrable=True, **loads),
            GddlIncrementalLoadOperator(task_id="incremental_load", deferrable=True, **loads),
        ]
    globals()[dag.dag_id] = dag
"""
_FACTORY = """\
from airflow.sdk import DAG  # noqa: F401 - Airflow reads only files that name it
from dagfactory import load_yaml_dags

load_yaml_dags(globals_dict=globals(), config_filepath={config!r})
"""
_EMPTY = """\
from airflow.sdk import DAG

with DAG("empty", schedule=None):
    pass
"""


@dataclass(frozen=True)
class Fleet:
    """Hourly tables of some sources.

    Attributes:
        view: what Airflow shows of them.
        medium: of each source's tables one of so many is `medium`, which has a DAG to itself; None: none is.
    """

    tables: int
    view: AirflowView = "pack"
    sources: int = 5
    medium: int | None = 10

    @property
    def names(self) -> list[str]:
        return [f"s{n % self.sources}.t{n}" for n in range(self.tables)]

    def write_metadata(self, root: Path) -> Path:
        folder = root / "metadata"
        (folder / "tables").mkdir(parents=True)
        (folder / "gddl.yaml").write_text(_SETTINGS.format(root=root, view=self.view))
        for source in range(self.sources):
            rows = [self._row(n) for n in range(source, self.tables, self.sources)]
            lines = [f"source: s{source}", "tables:" if rows else "tables: []", *(f"  - {row}" for row in rows)]
            (folder / "tables" / f"s{source}.yaml").write_text("\n".join(lines) + "\n")
        return folder

    def _row(self, n: int) -> str:
        size = "medium" if self.medium and n // self.sources % self.medium == self.medium - 1 else "small"
        return f"{{table: s{n % self.sources}.t{n}, keys: [id], size: {size}}}"

    def write_ours(self, root: Path) -> Path:
        """A DAGs folder that reads the metadata."""
        metadata = str(self.write_metadata(root))
        files = {"gddl.py": _DAG_FILE, "gddl_metadata_problems.py": _PROBLEMS_FILE}
        return _folder(root, {name: text.format(metadata=metadata) for name, text in files.items()})

    def write_loop(self, root: Path) -> Path:
        return _folder(root, {"loop.py": _LOOP.format(tables=self.tables)})

    def write_by_hand(self, root: Path, metadata: Path, dags: Sequence[Mapping[str, Any]]) -> Path:
        """A loop over DAGs of the same operators; `dags`: `dag_id`, `tags`, `doc`, `pool` and `assets` of each."""
        listed = root / "dags.json"
        root.mkdir(parents=True)
        listed.write_text(json.dumps(dags))
        return _folder(root, {"by_hand.py": _BY_HAND.format(listed=str(listed), metadata=str(metadata))})

    def write_factory(self, root: Path) -> Path:
        """JSON is YAML; a file of flow style spares this program a YAML writer, and dag-factory nothing."""
        config = root / "tables.yaml"
        config.parent.mkdir(parents=True, exist_ok=True)
        dags = "\n".join(f"table_{n}:\n  {_in_yaml(n)}" for n in range(self.tables))
        config.write_text(dags + "\n")
        return _folder(root, {"factory.py": _FACTORY.format(config=str(config))})


def write_empty(root: Path) -> Path:
    """A DAGs folder with one DAG and no task."""
    return _folder(root, {"empty.py": _EMPTY})


def _in_yaml(n: int) -> str:
    bash = "airflow.providers.standard.operators.bash.BashOperator"
    names = ["landed", "initial_load", "incremental_load", "publish"]
    tasks = [
        {"task_id": task, "operator": bash, "bash_command": f"true {n}", "dependencies": names[:at][-1:]}
        for at, task in enumerate(names)
    ]
    return json.dumps(
        {
            "default_args": {"start_date": "2024-01-01"},
            "schedule": f"{n % 60} * * * *",
            "catchup": False,
            "max_active_runs": 1,
            "tags": ["factory"],
            "tasks": tasks,
        }
    )


def _folder(root: Path, files: dict[str, str]) -> Path:
    folder = root / "dags"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
