"""Commits that Spark itself makes on S3: each version is one driver's, and a driver knows a commit of its own again.

Why so: docs/decisions/delta-and-ledger.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import obstore
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.stores import Storage
from tests.s3.conftest import Place, Server
from tests.s3.faulty import Fault, Way
from tests.s3.test_commits_on_s3 import COMMIT
from tests.spark.children import Child

TABLE = "lake/s/t"
KINDS = (Fault("lost"), Fault("done", status=500, code="InternalError"), Fault("done", status=503))
COUNT = 6
"""Commits of each of two drivers."""


def path_of(place: Place) -> str:
    return f"s3://{place.name}/{TABLE}"


def log_file(version: int) -> str:
    return f"{TABLE}/_delta_log/{version:020d}.json"


def driver(place: Place, what: str, *more: str) -> Child:
    """See `spark_commits`."""
    return Child("tests.s3.spark_commits", [what, path_of(place), *more], env={**os.environ, **place.environ})


def require_success(child: Child) -> None:
    ended = child.end(timeout=300)
    assert ended.status == 0, ended.err[:4000]


def rows(place: Place) -> list[tuple[str, int]]:
    table = DeltaTable(path_of(place), storage_options=Storage(place.environ).options_of(path_of(place)))
    return sorted((row["who"], row["id"]) for row in pa.table(table.scan()).to_pylist())


def commits(place: Place, count: int) -> list[list[Mapping[str, Any]]]:
    """Actions of the first versions; there is no other."""
    listed = {item["path"] for chunk in obstore.list(place.store, f"{TABLE}/_delta_log") for item in chunk}
    assert {path for path in listed if COMMIT.search(path)} == {log_file(version) for version in range(count)}
    contents = [bytes(obstore.get(place.store, log_file(version)).bytes()) for version in range(count)]
    return [[json.loads(line) for line in content.splitlines()] for content in contents]


def test_a_commit_whose_answer_was_lost_is_no_conflict(server: Server, way: Way) -> None:
    """The put takes effect, the client repeats it, and the second one meets what the first one wrote."""
    place = server.place(way.endpoint)
    for version in range(5):
        kind = KINDS[version % len(KINDS)]
        way.faults.append(
            Fault(kind.kind, path=log_file(version), method="PUT", times=1, status=kind.status, code=kind.code)
        )
    with driver(place, "each") as child:
        require_success(child)
    assert [fault.met for fault in way.faults] == [1] * 5
    assert rows(place) == [("a", 0), ("b", 1)]
    made = [action["commitInfo"]["operation"] for actions in commits(place, 5) for action in actions[:1]]
    assert made == ["WRITE", "WRITE", "WRITE", "MERGE", "DELETE"]
    assert {f"/{place.name}/{log_file(version)}" for version in range(5)} <= set(way.absent)


def test_of_two_drivers_one_makes_each_version(server: Server, way: Way) -> None:
    """They commit at the same time, and the first answer to every third commit is lost."""
    place = server.place(way.endpoint)
    schema = pa.schema([("who", pa.string()), ("id", pa.int64())])
    options = {**(Storage(place.environ).options_of(path_of(place)) or {}), "conditional_put": "etag"}
    write_deltalake(path_of(place), schema.empty_table(), storage_options=options)
    last = 2 * COUNT
    way.faults = [Fault("lost", path=log_file(version), method="PUT", times=1) for version in range(1, last + 1, 3)]
    way.requests.clear()
    with ExitStack() as stack:
        for child in [stack.enter_context(driver(place, "append", who, str(COUNT))) for who in "ab"]:
            require_success(child)
    added = [[a["add"]["path"] for a in actions if "add" in a] for actions in commits(place, last + 1)]
    assert [len(files) for files in added] == [0] + [1] * last
    assert len({files[0] for files in added[1:]}) == last, "no commit is there twice"
    assert rows(place) == [(who, number) for who in "ab" for number in range(COUNT)]
    tried = [request for request in way.requests if request.startswith("PUT ") and "/_delta_log/0" in request]
    assert [fault.met for fault in way.faults] == [1] * len(way.faults)
    assert len(tried) > last + len(way.faults), "the drivers met one another"
