"""docs/lake-files.md names every kind of document that Airflow keeps below `_gddl`."""

from __future__ import annotations

import pytest

from tests.airflow.stage import Stage
from tests.airflow.test_run import run
from tests.unit.pages import found_kinds, unknown_to_page


@pytest.mark.usefixtures("database")
def test_page_names_what_a_run_of_a_dag_keeps(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.a")
    run()
    assert unknown_to_page(stage.lake) == []
    assert found_kinds(stage.lake) >= {
        "state/<pipeline>.json",
        "logs/<group>/…",
    }
