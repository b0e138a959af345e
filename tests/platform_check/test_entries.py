"""Entries that a check makes in catalogs of each kind: found, removed, and those of others left alone."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.platform_check import catalog_entries, course
from airflow_gddl.platform_check.catalog_entries import ENTRIES, database_of, entries_of, to_register
from airflow_gddl.platform_check.checks import NotTriedError, Outcome
from airflow_gddl.platform_check.command import announcement
from airflow_gddl.platform_check.glue_entries import GlueEntries
from airflow_gddl.platform_check.hive_entries import HiveEntries
from airflow_gddl.platform_check.place import CheckContext
from tests.harness.waiting import wait_for
from tests.platform_check.catalogs import KINDS, catalog, in_hive, of_unity
from tests.platform_check.ground import Ground, outcomes

ALL = [pytest.param(kind, marks=pytest.mark.deep if kind == "hive" else ()) for kind in KINDS]
PLACES = {kind: "bucket_ground" if kind in ("glue", "iceberg_glue") else "ground" for kind in KINDS}


@pytest.fixture
def here(kind: str, request: pytest.FixtureRequest) -> Ground:
    """Jobs of Glue write to S3 alone."""
    found: Ground = request.getfixturevalue(PLACES[kind])
    return found


def register(made: CheckContext) -> Outcome:
    """Of a check that was killed before it removed anything."""
    taken: list[Outcome] = []
    course.everything(made, taken.append, ("catalog.register",))
    (one,) = taken
    return one


def tables(made: CheckContext) -> set[str] | None:
    found = entries_of(made, "main").tables()
    return None if found is None else set(found)


def test_each_kind_is_tried() -> None:
    assert sorted(ENTRIES) == sorted(KINDS)


@pytest.mark.parametrize("kind", ALL)
def test_a_table_is_registered_and_removed_and_what_others_have_stays(kind: str, here: Ground) -> None:
    """A killed check's entries are removed by whoever removes its folder; a table of another one stays, with its
    database."""
    with catalog(kind, here) as served:
        made = served.ground(here).context()
        database = database_of(made.place.root, "main")
        found = register(made)
        assert (found.state, found.finding) == ("PASS", "1 registered, and found in the catalog")
        assert tables(made) == {"airlines"}
        (said,) = (line for line in announcement(replace(made, place=replace(made.place, name="x"))) if "id-1" in line)
        assert f"First remove its database in the catalog main with {entries_of(made, 'main').by_hand}" in said
        served.intrude(database)
        left = course.removed(made)
        assert (left.state, left.code) == ("FAIL", "PLATFORM_NOT_REMOVED")
        assert left.finding == f"the database {database} of the catalog main is left: it has entries of others, mine"
        assert tables(made) == {"mine"}
        assert list(made.store.list(made.place.root)) == []
        assert course.removed(made).state == "PASS", "nothing says any more that this check made it"
        assert tables(made) == {"mine"}


@pytest.mark.parametrize("kind", ALL)
def test_nothing_is_left(kind: str, here: Ground) -> None:
    with catalog(kind, here) as served:
        made = served.ground(here).context()
        found = outcomes(made, "catalog.register")
        assert [one.line for one in found.values() if one.state != "PASS"] == []
        assert tables(made) is None
        assert list(made.store.list(made.place.lake)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_database_that_is_there_is_not_used_and_stays(kind: str, here: Ground) -> None:
    with catalog(kind, here) as served:
        made = served.ground(here).context()
        database = database_of(made.place.root, "main")
        served.make(database)
        found = outcomes(made, "catalog.register")
        assert found["catalog.register"].state == "FAIL"
        said = f"main: the database {database} is there, and was not made by this check"
        assert found["catalog.register"].finding == said
        assert found["cleanup"].state == "PASS"
        assert tables(made) == set()


def test_what_comes_into_a_database_while_it_is_removed_stays(
    bucket_ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Glue drops a database with all that is in it."""
    with catalog("glue", bucket_ground) as served:
        made = served.ground(bucket_ground).context()
        database = database_of(made.place.root, "main")
        assert register(made).state == "PASS"
        drop = GlueEntries.drop_table

        def meanwhile(entries: GlueEntries, name: str) -> None:
            drop(entries, name)
            served.intrude(database)

        monkeypatch.setattr(GlueEntries, "drop_table", meanwhile)
        left = course.removed(made).finding
        assert left == f"the database {database} of the catalog main is left: it has entries of others, mine"
        assert tables(made) == {"mine"}


def test_databases_whose_notes_can_not_be_listed_are_named(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    with catalog("unity", ground) as served:
        made = served.ground(ground).context()
        assert register(made).state == "PASS"
        with monkeypatch.context() as now:
            now.setattr(catalog_entries, "noted", Mock(side_effect=OSError("slow down")))
            left = course.removed(made)
        said = "whether databases in catalogs are left is not known: slow down. Remove them in the catalog main with"
        assert (left.state, left.finding) == ("FAIL", f"{said} {entries_of(made, 'main').by_hand}")
        assert tables(made) == {"airlines"}


def test_the_command_for_glue_names_the_account() -> None:
    spec = CatalogSpec(kind="glue", catalog_id="123456789012")
    assert GlueEntries(spec, "d", {}).by_hand == "`aws glue delete-database --name d --catalog-id 123456789012`"


@contextmanager
def silent() -> Iterator[str]:
    """Address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


SETTINGS = {
    "glue": {"kind": "glue", "region": "us-east-1", "endpoint": "http://{}"},
    "hive": {"kind": "hive", "uri": "thrift://{}"},
    "iceberg_glue": {"kind": "iceberg_glue", "region": "us-east-1", "endpoint": "http://{}"},
    "iceberg_rest": {"kind": "iceberg_rest", "uri": "http://{}"},
    "unity": {"kind": "unity", "url": "http://{}", "catalog_name": "lake"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_remote", [False, True])
def test_a_catalog_that_does_not_answer_is_found(kind: str, is_remote: bool, ground: Ground) -> None:
    """For jobs elsewhere that proves nothing."""
    with silent() as address:
        settings = {name: value.format(address) for name, value in SETTINGS[kind].items()}
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_MAX_ATTEMPTS": "1"}
        there = replace(ground, settings={"catalogs": {"main": {**settings, "timeout": "1s"}}}, environ=keys)
        made = there.context()
        made = replace(made, loaded=replace(made.loaded, runner="glue")) if is_remote else made
        found = outcomes(made, "catalog.register")
    one = found["catalog.register"]
    expected = ("NOT TRIED", "", "not-from-here") if is_remote else ("FAIL", "CATALOG_UNREACHABLE", "")
    assert (one.state, one.cause, one.reason) == expected, one
    assert found["cleanup"].state == "PASS", "nothing was made"


@pytest.mark.parametrize("status", [403, 429, 500])
def test_a_removal_that_is_refused_is_named_and_the_folder_goes(status: int, ground: Ground) -> None:
    with catalog("unity", ground) as served:
        of_unity(served).refuses = {"DELETE /schemas": status}
        made = served.ground(ground).context()
        found = outcomes(made, "catalog.register")
        assert found["catalog.register"].state == "PASS"
        said = found["cleanup"].line
        database = database_of(made.place.root, "main")
        assert f"the database {database} of the catalog main may be left: " in said
        assert f"Unity Catalog answers {status}: refused for the test" in said
        assert f"Remove it with `DROP SCHEMA lake.{database} CASCADE`" in said
        assert list(made.store.list(made.place.lake)) == []


@pytest.mark.parametrize("beginning", ["POST /schemas", "POST /tables", "GET /schemas"])
def test_what_is_refused_is_found_with_its_code(beginning: str, ground: Ground) -> None:
    with catalog("unity", ground) as served:
        of_unity(served).refuses = {beginning: 403}
        found = outcomes(served.ground(ground).context(), "catalog.register")["catalog.register"]
        assert (found.state, found.cause) == ("FAIL", "CATALOG_DENIED")
        of_unity(served).refuses = {}


def test_all_pages_of_a_listing_are_read(ground: Ground) -> None:
    with catalog("unity", ground) as served:
        world = of_unity(served)
        made = served.ground(ground).context()
        database = database_of(made.place.root, "main")
        served.make(database)
        world.tables |= {f"lake.{database}.t{i}": {"name": f"t{i}"} for i in range(3)}
        assert tables(made) == {"t0", "t1", "t2"}


ONE_CHECK = """
import sys
from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.platform_check import course
course.storage_checks.PROBES = {}
made = course.job_checks.probes
course.job_checks.probes = lambda checks: {"catalog.register": made(checks)["catalog.register"]}
sys.exit(invoke(sys.argv[1:], real()))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_table_is_registered_leaves_nothing(number: signal.Signals, ground: Ground) -> None:
    with catalog("unity", ground) as served:
        world, there = of_unity(served), served.ground(ground)
        there.write()
        report = ground.root / "report.json"
        options = ["check", "--platform", "--metadata", str(there.metadata), "--report", str(report)]
        command = [sys.executable, "-P", "-c", ONE_CHECK, *options]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, cwd=Path(__file__).parents[2], **quiet) as process:
            wait_for(lambda: world.tables, "the entry", 120)
            process.send_signal(number)
            assert process.wait(60) == 128 + number
    found = {one["check"]: one for one in json.loads(report.read_text())["checks"]}
    assert found["cleanup"]["result"] == "PASS"
    assert (world.tables, world.schemas) == ({}, {})
    assert not Path(ground.lake).exists()


def test_two_checks_at_once_have_a_database_each(ground: Ground) -> None:
    with catalog("unity", ground) as served:
        there = served.ground(ground)
        first = there.context()
        second = replace(first, place=replace(first.place, name="id-2"))
        for made in (first, second):
            assert register(made).state == "PASS"
        assert len(of_unity(served).schemas) == 2
        assert course.removed(first).state == "PASS"
        assert tables(second) == {"airlines"}
        assert course.removed(second).state == "PASS"
        assert of_unity(served).schemas == {}


def test_one_catalog_of_each_kind_is_tried_and_all_that_is_wrong_is_named(ground: Ground) -> None:
    specs = {name: CatalogSpec(kind=kind) for name, kind in [("a", "unity"), ("b", "unity"), ("c", "hive")]}
    assert list(to_register(specs)) == ["a", "c"]
    with catalog("unity", ground) as served:
        here = {"kind": "hive"}
        there = replace(ground, settings={"catalogs": {"main": dict(served.settings), "old": here}})
        found = outcomes(there.context(), "catalog.register")["catalog.register"]
        why = "the catalog names no `uri`: only the jobs' Spark knows the metastore"
        assert (found.state, found.reason, found.finding) == ("NOT TRIED", "registration", f"1 of 2: {why}")
        of_unity(served).forgets = True
        found = outcomes(there.context(), "catalog.register")["catalog.register"]
        assert (found.state, found.finding.partition(", not ")[0]) == ("FAIL", "main: the catalog has {}")


def test_a_note_of_a_catalog_that_the_metadata_names_no_more_is_left(ground: Ground) -> None:
    made = ground.context()
    made.store.create(made.place.below("catalogs", "gone"), b"")
    assert "the database gddl_check_" in course.removed(made).finding


def test_the_database_is_of_this_folder_and_catalog_alone(ground: Ground) -> None:
    """Whoever writes notes leads the removal to no other database."""
    names = {database_of(root, name) for root in ("/a", "/b") for name in ("c", "d")}
    assert len(names) == 4
    assert all(re.fullmatch(r"gddl_check_[0-9a-f]{12}", name) for name in names)


@pytest.mark.parametrize("module", ["thrift.Thrift", "pyiceberg.exceptions"])
def test_without_the_client_a_catalog_is_not_tried(
    module: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    kind = "hive" if module.startswith("thrift") else "iceberg_rest"
    settings = {name: value.format("127.0.0.1:1") for name, value in SETTINGS[kind].items()}
    made = replace(ground, settings={"catalogs": {"main": settings}}).context()
    found = outcomes(made, "catalog.register")["catalog.register"]
    assert (found.state, found.reason) == ("NOT TRIED", "no-package")
    assert "pip install " in found.finding


def test_a_metastore_that_closes_the_connection_is_not_tried() -> None:
    """As one does that asks for Kerberos."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            connection, _ = server.accept()
            with suppress(OSError):
                connection.recv(1)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1000)
            connection.close()

        thread = threading.Thread(target=close)
        thread.start()
        spec = CatalogSpec(kind="hive", uri=f"thrift://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(NotTriedError) as caught:
            HiveEntries(spec, "d", {}).tables()
        thread.join()
    assert caught.value.reason == "registration"
    assert "Kerberos" in caught.value.detail


def test_only_a_folder_of_its_own_goes_with_a_database_of_hive(ground: Ground) -> None:
    with catalog("hive", ground) as served:
        uri = str(served.settings["uri"])
        spec = CatalogSpec(kind="hive", uri=uri)
        for database, is_kept in (("made", False), ("other", True)):
            served.make(database)  # in the folder `made`
            (ground.root / "made").mkdir(exist_ok=True)
            HiveEntries(spec, database, {}).drop_database()
            HiveEntries(spec, database, {}).drop_database()
            assert (ground.root / "made").exists() == is_kept
        assert in_hive(uri, "get_all_databases") == ["default"]
