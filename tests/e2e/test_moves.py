"""Tables that another DAG loads from now on, while a run of their old DAG goes on."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.site import Site

PACK = "gddl_pack.move.small.1"


def placement(site: Site) -> dict[str, Any]:
    path = site.lake / "_gddl" / "airflow" / "placement" / "default.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"packs": {}, "retired": {}}
    return found


def tags(site: Site, dag_id: str) -> set[str]:
    return {tag["name"] for tag in site.running.rest.get(f"dags/{dag_id}")["tags"]}


def test_a_run_ends_in_its_dag_although_its_tables_have_moved(site: Site) -> None:
    site.rows("move", *(f"{{table: move.{name}, keys: [id]}}" for name in "ab"), source="move")
    site.runs.wait_for([PACK])
    site.running.wait("the placement in the lake", lambda: PACK in placement(site)["packs"])

    urgent = (f"{{table: move.{name}, keys: [id], priority: critical}}" for name in "ab")
    site.rows("move", *urgent, source="move")
    site.running.wait("the new priority", lambda: "priority:critical" in tags(site, PACK))

    site.land("move.a")
    site.land("move.b")
    hold = site.hold("move.b")
    run = site.runs.trigger(PACK)
    site.running.wait("the job", lambda: bool(site.jobs("move")))
    site.rows("move", *(f"{{table: move.{name}, keys: [id], size: solo}}" for name in "ab"), source="move")
    site.runs.wait_for(["gddl.move.a", "gddl.move.b"])
    site.running.wait("the old DAG to be retired", lambda: "retired" in tags(site, PACK))
    hold.unlink()
    site.runs.finish([run])
    assert [job["tables"] for job in site.jobs("move", "end")] == [["move.a", "move.b"]]

    assert site.running.rest.get(f"dags/{PACK}")["timetable_summary"] is None, "it has no schedule"
    assert site.running.rest.get(f"dags/{PACK}/dagRuns")["total_entries"] == 1, "its history is there"
    site.land("move.a", "20240102-000000000.parquet")
    site.load("gddl.move.a")
    assert site.jobs("move")[-1]["tables"] == ["move.a"]
    site.running.wait("the move in the lake", lambda: PACK in placement(site)["retired"])
    assert site.import_errors() == []
