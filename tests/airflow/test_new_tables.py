"""Tables without a row in Airflow: a DAG that looks where a source asks, an alert for each, the page, accepted rows."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl import configuration
from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.runtime.state.status_list import TableQuery
from airflow_gddl.stores import Storage
from airflow_gddl.tools.page.responses import PageSource, table_list
from airflow_gddl.tools.simulate.simulator import simulate
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape
from airflow_gddl.version_compat import AirflowException
from tests.airflow.stage import Stage
from tests.airflow.test_alerting import ListNotifier, document, watched

__all__ = ["document"]
DAG_ID = "gddl_new_tables"


def asking(stage: Stage, **source: Any) -> None:
    """Settings of a source of its own."""
    entry = {"landing": str(stage.landing), "new_tables": "propose", **source}
    settings = {"landing": str(stage.landing.parent / "other"), "lake": str(stage.lake), "sources": {"crm": entry}}
    stage.write("gddl.yaml", json.dumps(settings))


def land(stage: Stage, *tables: str) -> None:
    for table in tables:
        schema, name = table.split(".")
        rows = pa.table({"id": list(range(20))})
        shape = {name: TableShape(keys=("id",))}
        simulate(
            SimulateSpec(input={name: rows}, landing=stage.landing, schema=schema, tables=shape, rounds=1, changes=5)
        )
        for path in (stage.landing / schema / name).rglob("*.parquet"):
            os.utime(path, (1_700_000_000, 1_700_000_000))


def looked(run_id: str = "r", **params: Any) -> dict[str, list[str]]:
    """What the DAG's task returns."""
    task = build_upkeep_dags()[DAG_ID].get_task("look")
    found: dict[str, list[str]] = task.execute(
        {"params": {"accept": [], "ignore": [], "keys": [], **params}, "run_id": run_id}
    )
    return found


def loaded_tables() -> set[str]:
    compiled = configuration.compiled_metadata(configuration.metadata_place()).renewed()
    return {table for one in compiled.pipelines() for table in compiled.pipeline(one.dag_id).pipeline.tables}


def test_without_a_source_that_asks_there_is_no_look(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    assert DAG_ID not in build_upkeep_dags()


def test_an_accepted_row_is_written_and_loaded_by_a_dag(stage: Stage) -> None:
    asking(stage)
    assert set(build_upkeep_dags()) == {DAG_ID}, "of no table at all"
    land(stage, "shop.lines")
    assert looked() == {"proposed": ["crm:shop.lines"]}
    assert looked() == {}
    assert looked(accept=["crm:shop.lines"]) == {"accepted": ["crm:shop.lines"]}
    assert loaded_tables() == {"shop.lines"}
    assert "gddl_maintenance" in build_upkeep_dags()


def test_a_person_decides_in_the_form(stage: Stage) -> None:
    asking(stage)
    land(stage, "shop.lines", "shop.parts")
    assert looked() == {"proposed": ["crm:shop.lines", "crm:shop.parts"]}
    assert looked(accept=["crm:shop.lines"], ignore=["crm:shop.parts"]) == {
        "accepted": ["crm:shop.lines"],
        "ignored": ["crm:shop.parts"],
    }
    assert loaded_tables() == {"shop.lines"}
    with pytest.raises(AirflowException, match="OPTION_INVALID"):
        looked(accept=["crm:shop.other"])


@pytest.mark.usefixtures("document")
def test_each_new_table_is_one_alert_and_a_line_of_the_page(stage: Stage) -> None:
    stage.rows("{table: shop.orders, keys: [id], source: crm}")
    asking(stage)
    land(stage, "shop.lines")
    looked()
    assert watched(stage) == {"began": 1, "over": 0}
    (text,) = ListNotifier.reported
    assert text.startswith("told: (note) crm:shop.lines: [NEW_TABLE_PROPOSED] has no metadata row; proposed: keys id")
    assert text.endswith("▸ gddl new-tables accept crm:shop.lines")
    assert watched(stage) == {"began": 0, "over": 0}
    land(stage, "shop.parts")
    looked()
    assert watched(stage) == {"began": 1, "over": 0}, "the first one is not sent again"
    looked(ignore=["crm:shop.lines"])
    assert watched(stage) == {"began": 0, "over": 0}, "its end is not sent"
    source = PageSource(compiled=lambda: configuration.compiled_metadata(configuration.metadata_place()).renewed())
    board = source.board()
    shown = table_list(board, board.statuses, TableQuery(), 1, 50, all_problems=True)["notes"]
    assert [line.partition(" has")[0] for line in shown] == ["crm:shop.parts: [NEW_TABLE_PROPOSED]"]
    assert table_list(board, board.statuses, TableQuery(), 1, 50, all_problems=False)["notes"] == []


def test_where_the_folder_is_read_only_the_log_has_the_rows(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(stage)
    land(stage, "shop.lines")
    looked()
    write = Storage.write
    monkeypatch.setattr(Storage, "write", lambda self, path, data: refuse(path) or write(self, path, data))
    assert looked(accept=["crm:shop.lines"]) == {"accepted": ["crm:shop.lines"]}
    said = capsys.readouterr().out
    assert "(read-only file system); add these files to it:" in said
    assert "'crm:shop.lines': [id]  # measured: unique in all 20 rows of the full load" in said
    assert loaded_tables() == set()
    assert looked() == {}, "it stays proposed"


def refuse(path: str) -> None:
    if "metadata" in path:
        raise PermissionError("read-only file system")
