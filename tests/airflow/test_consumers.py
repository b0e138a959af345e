"""DAGs of others that start when a table was updated."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models.asset import AssetEvent, association_table
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import delete, event, select

from airflow_gddl.assets import events_of
from airflow_gddl.example_dags import example_consumer
from tests.airflow.bag import parse
from tests.airflow.stage import Stage
from tests.airflow.test_run import DATES, run

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def consumed() -> Iterator[None]:
    """Runs of this test's consumers are started by all events that there are, as the scheduler links them."""

    def link(_mapper: Any, connection: Any, made: DagRun) -> None:
        if made.dag_id.startswith("gddl"):
            return
        for number in connection.execute(select(AssetEvent.id)).scalars().all():
            connection.execute(association_table.insert().values(dag_run_id=made.id, event_id=number))

    with create_session() as session:
        session.execute(delete(AssetEvent))
    event.listen(DagRun, "after_insert", link)
    yield
    event.remove(DagRun, "after_insert", link)


def stored(folder: Path, name: str, text: str) -> Any:
    """The DAG of a file, as the DAG processor stores it."""
    folder.mkdir()
    (folder / f"{name}.py").write_text(text)
    bag = parse(folder)
    assert bag.import_errors == {}
    with contextlib.suppress(ImportError):  # of Airflow 3.0, where `conftest` does it
        importlib.import_module("airflow.dag_processing.dagbag").sync_bag_to_db(bag, "dags-folder", None)
    (dag,) = bag.dags.values()
    return dag


def result(dag: Any, task_id: str) -> Any:
    done = dag.test(logical_date=next(DATES))
    assert str(done.state) == "success"
    (instance,) = (one for one in done.get_task_instances() if one.task_id == task_id)
    return instance.xcom_pull(task_ids=task_id)


def test_the_example_counts_each_update_once(
    stage: Stage, consumed: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.rows("{table: shop.orders, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.b")
    for day in "12":
        stage.land("shop.orders", f"2024010{day}-000000000.parquet")
        run()
    dag = stored(tmp_path / "consumers", "example", Path(example_consumer.__file__).read_text())
    assert result(dag, "show") == 2
    assert "".join(capfd.readouterr()).count("shop.orders: 7 rows, 12.5 s behind, version 3") == 2


def test_the_recipe_hands_on_the_version_of_each_table(stage: Stage, consumed: None, tmp_path: Path) -> None:
    stage.rows("{table: shop.orders, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.orders")
    stage.land("shop.b")
    run()
    text = (ROOT / "docs/consumers.md").read_text()
    dag = stored(
        tmp_path / "consumers", "revenue", text.split("<!-- dag: revenue.py -->\n```python\n")[1].split("```")[0]
    )
    dag.task_dict["models"].python_callable = lambda found: f"test -n '{found}'"  # in place of dbt
    assert result(dag, "versions") == {"shop.orders": 3}


def test_a_table_without_an_event_has_none() -> None:
    assert events_of("shop.orders", {}) == []
