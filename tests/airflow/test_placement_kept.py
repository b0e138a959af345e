"""Where the tables are is kept in the lake: for every machine, and when the metadata changes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from tests.airflow.test_compiled_metadata import Place
from tests.harness.s3_server import Bucket

FIRST, SECOND = "gddl_pack.shop.small.1", "gddl_pack.shop.small.2"
DAY = 86400.0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.write("gddl.yaml", "landing: ../landing\nlake: ../lake\ntiers: {small: {tables_per_job: 2}}\n")
    made.tables("shop.b", "shop.c")
    return made


def kept(place: Place) -> dict[str, list[str]]:
    path = place.root / "lake" / "_gddl" / "airflow" / "placement" / "default.json"
    return {name: pack["tables"] for name, pack in json.loads(path.read_text())["packs"].items()}


def tables(compiled: CompiledMetadata) -> dict[str, tuple[str, ...]]:
    documents = (compiled.pipeline(pipeline.dag_id) for pipeline in compiled.served())
    return {found.pipeline.dag_id: found.pipeline.tables for found in documents if found is not None}


def on_another_machine(place: Place) -> CompiledMetadata:
    return CompiledMetadata.current(replace(place.settings, cache=place.root / "other cache"))


def test_a_parse_does_not_write_to_the_lake_and_the_placement_is_written_once(place: Place) -> None:
    compiled = place.current()
    assert not (place.root / "lake").exists()
    assert compiled.keep_placement()
    assert kept(place) == {FIRST: ["shop.b", "shop.c"]}
    generation = place.current().generation
    assert place.current().keep_placement()
    assert place.current().generation == generation, "nothing is compiled anew while nothing changes"


def test_a_new_table_moves_no_other_on_any_machine(place: Place) -> None:
    place.current().keep_placement()
    place.tables("shop.a", "shop.b", "shop.c")
    expected = {FIRST: ("shop.b", "shop.c"), SECOND: ("shop.a",)}
    assert tables(place.current()) == tables(on_another_machine(place)) == expected


def test_a_machine_learns_what_another_one_decided(place: Place) -> None:
    """Both see two changes of the metadata, one of them both changes at once."""
    place.current().keep_placement()
    slow = on_another_machine(place)
    place.tables("shop.b", "shop.c", "shop.d")
    place.current().keep_placement()
    place.tables("shop.a", "shop.b", "shop.c", "shop.d", "shop.e")
    assert not slow.keep_placement() or kept(place)[SECOND] == ["shop.d"], "what is older is not written over it"
    place.current().keep_placement()
    assert tables(on_another_machine(place)) == tables(place.current())
    assert kept(place)[SECOND] == ["shop.a", "shop.d"]


def test_two_machines_that_decide_at_once_agree(place: Place) -> None:
    one, other = place.current(), on_another_machine(place)
    assert (one.keep_placement(), other.keep_placement()) == (True, True), "both have decided the same"
    assert other.renewed().keep_placement()
    assert tables(on_another_machine(place)) == tables(place.current())


def test_an_id_without_tables_serves_its_tables_until_its_time_is_over(place: Place) -> None:
    place.current().keep_placement()
    place.tables("shop.b", "shop.c", extra=", size: medium")
    moved = place.current()
    assert [pipeline.dag_id for pipeline in moved.pipelines()] == ["gddl.shop.b", "gddl.shop.c"]
    assert tables(moved)[FIRST] == ("shop.b", "shop.c")
    directory = moved.directory()
    assert directory is not None
    assert [row.dag_id for row in directory.rows] == ["gddl.shop.b", "gddl.shop.c"], "its tables are elsewhere"
    moved.keep_placement()
    assert FIRST in tables(place.current())
    place.now += 12 * DAY
    assert FIRST in tables(place.current()), "nothing is compiled anew by a clock"
    place.current().keep_placement()
    assert FIRST not in tables(place.current())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "Expecting property name"),
        ("[]", "[] is not an object"),
        ('{"format": 2}', "format 2 belongs to another release"),
        (
            '{"packs": {"../../etc": {"source": "shop", "tier": "small", "schedule": "hourly", "tables": ["shop.b"]}}}',
            "'../../etc' is not a DAG id",
        ),
    ],
)
def test_a_damaged_placement_renames_nothing(place: Place, text: str, named: str) -> None:
    place.current().keep_placement()
    place.tables("shop.a", "shop.b", "shop.c")
    place.current().keep_placement()
    before = tables(place.current())
    for path in (place.root / "lake").rglob("default.json"):
        path.write_text(text)
    place.tables("shop.a", "shop.b", "shop.c", "shop.d")
    assert tables(place.current()) == {**before, SECOND: ("shop.a", "shop.d")}
    cold = on_another_machine(place)
    assert cold.pipelines() == ()
    assert "[PLACEMENT_DAMAGED]" in cold.state.why
    assert named in cold.state.why


def test_tables_stay_while_the_lake_does_not_answer(place: Place, bucket: Bucket) -> None:
    place.environ.update(os.environ, GDDL_LAKE="s3://bucket/lake")
    place.current().keep_placement()
    place.now += 60.0
    place.tables("shop.a", "shop.b", "shop.c")
    expected = {FIRST: ("shop.b", "shop.c"), SECOND: ("shop.a",)}
    assert tables(place.current()) == expected
    place.current().keep_placement()
    place.now += 60.0
    assert place.current().keep_placement()
    asked = len(bucket.requests)
    assert tables(place.current()) == expected
    assert len(bucket.requests) == asked, "the lake is asked no more often than refresh_seconds says"
    bucket.fail = 403
    place.now += 60.0
    place.tables("shop.a", "shop.b", "shop.c", "shop.d")
    assert tables(place.current()) == {**expected, SECOND: ("shop.a", "shop.d")}
    cold = on_another_machine(place)
    by_name = {FIRST: ("shop.a", "shop.b"), SECOND: ("shop.c", "shop.d")}
    assert tables(cold) == by_name, "ids may differ, but there are DAGs"
    bucket.fail = None
    assert not cold.keep_placement(), "what the lake has is not overwritten"
    place.now += 60.0
    assert tables(on_another_machine(place)) == tables(place.current()) == {**expected, SECOND: ("shop.a", "shop.d")}
