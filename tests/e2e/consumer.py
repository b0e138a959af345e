"""A user's own DAG, started by a table: it notes what the table's event holds. For the DAGs folder of the tests."""

import json
import os
from pathlib import Path

from airflow.sdk import DAG, Asset, task

SHOP_A = Asset("shop.a")

with DAG("consumer", schedule=[SHOP_A], is_paused_upon_creation=False):

    @task
    def note(triggering_asset_events=None):
        for event in triggering_asset_events[SHOP_A]:
            path = Path(os.environ["E2E_JOB"], f"consumed-{event.extra['gddl_run_id']}.json")
            path.with_suffix(".part").write_text(json.dumps(event.extra))
            path.with_suffix(".part").rename(path)

    note()
