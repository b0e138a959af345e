"""Facts of events in `_gddl` of the change table: the origin of their source, and the columns that they carried."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Explain, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import Origin
from spark_jobs.plan.table_schema import EVENT_FIELDS
from tests.harness.examples import at_random
from tests.harness.lake import Lake, spec_of
from tests.harness.sharded import Sharded
from tests.oracle import DeliveredFile, Run

TYPES = {"Op": "string", "seq": "int64", "id": "int64", "a": "string", "b": "int64", "c": "string", "cols": "string"}
VALUES: Mapping[str, Any] = {"a": "x", "b": 1, "c": "y"}


@dataclass(frozen=True)
class Change:
    """A change: its operation, the columns beside the key that it has values of, and its list; null: it has none."""

    op: str
    has: frozenset[str]
    lists: tuple[str, ...] | None

    def row(self, number: int) -> dict[str, Any]:
        values = {name: value if name in self.has else None for name, value in VALUES.items()}
        cols = None if self.lists is None else ",".join(self.lists)
        return {"Op": self.op, "seq": number, "id": number, "cols": cols, **values}

    def names(self, *, lacks: str | None, ignores: bool) -> list[str] | None:
        """What the table has to tell, by the words of docs/semantics.md alone."""
        if self.op == "D" and not self.has:
            return ["id", "seq"]
        carried = set(VALUES) if self.lists is None else {*VALUES} & {*self.lists}
        carried -= {lacks} if lacks else set()
        carried &= {*self.has} if ignores and self.op == "U" else {*VALUES}
        return None if carried == set(VALUES) else sorted({"id", "seq", *carried})


WHOLE = Change("U", frozenset("ac"), None)
CHANGES = st.builds(
    Change,
    op=st.sampled_from(["I", "U", "U", "D"]),
    has=st.frozensets(st.sampled_from(sorted(VALUES))),
    lists=st.none() | st.lists(st.sampled_from(sorted(VALUES)), unique=True, min_size=1).map(tuple),
)


@settings(max_examples=at_random(60))
@example([Change("U", frozenset("a"), ("a",)), Change("D", frozenset(), None)], [WHOLE], True)
@example([Change("U", frozenset(), ("c", "a"))], [Change("U", frozenset("c"), ("b", "c"))], False)
@given(st.lists(CHANGES, min_size=1, max_size=6), st.lists(CHANGES, max_size=4), st.booleans())
def test_carried_columns_are_named(first: list[Change], later: list[Change], ignores: bool) -> None:
    """The second file lacks the column `b`: so do its changes, and an update that lists it alone is quarantined."""
    spec = spec_of(columns_to_update="cols", ignore_null_updates=ignores, settle="0s")
    with TemporaryDirectory() as folder:
        lake = Lake(Path(folder))
        fewer = tuple(name for name in TYPES if name != "b")
        rest = [change.row(at) for at, change in enumerate(later, len(first) + 1)]
        rest = [{name: row[name] for name in fewer} for row in rest]
        whole = tuple(change.row(at) for at, change in enumerate(first, 1))
        files = [DeliveredFile(name="20240101-000000001.parquet", kind="change", columns=tuple(TYPES), rows=whole)]
        if rest:
            files += [DeliveredFile(name="20240102-000000001.parquet", kind="change", columns=fewer, rows=tuple(rest))]
        lake.land(spec, Run(files=tuple(files)), TYPES)
        lake.done(spec)
        stored = {row["seq"]: row["_gddl"]["columns"] for row in lake.rows(lake.layout(spec).changes)}
    found = {seq: None if names is None else sorted(names) for seq, names in stored.items()}
    wanted = {at: change.names(lacks=None, ignores=ignores) for at, change in enumerate(first, 1)}
    for at, change in enumerate(later, len(first) + 1):
        if change.op != "U" or change.lists != ("b",):
            wanted[at] = replace(change, has=change.has - {"b"}).names(lacks="b", ignores=ignores)
    assert found == wanted


def test_tables_without_parts_and_origin_have_no_such_fields(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(delete="soft", settle="0s")
    lake.load(spec)
    lake.change(spec, 1, [("U", 1, "b"), ("D", 2, None)])
    lake.done(spec)
    assert not {name for name, _ in EVENT_FIELDS} & {*lake.rows(lake.layout(spec).changes)[0]["_gddl"]}


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_fields_come_by_metadata_in_one_commit(delete: str, tmp_path: Path) -> None:
    """No data file is written again, and only the change table gets them."""
    lake, spec = Lake(tmp_path), spec_of(delete=delete, history=True, settle="0s")
    lake.load(spec)
    lake.change(spec, 1, [("U", 1, "b")])
    lake.done(spec)
    layout, named = lake.layout(spec), replace(spec, region="eu-west-1", source_type="postgresql")
    before = _log(layout.changes)
    assert lake.done(named).batches == 0, "a setting alone wakes no table"
    assert _log(layout.changes) == before
    lake.change(spec, 2, [("U", 1, "c")])
    lake.done(named)
    added = _log(layout.changes)[len(before) :]
    assert [sorted({*action} - {"commitInfo"}) for commit in added for action in commit if "commitInfo" not in action]
    assert [action for commit in added for action in commit if "remove" in action] == []
    assert sum("metaData" in action for commit in added for action in commit) == 1
    told = sorted(
        (row["_gddl"]["region"] or "", row["_gddl"]["source_type"] or "") for row in lake.rows(layout.changes)
    )
    assert told == [("", "")] * 4 + [("eu-west-1", "postgresql")]
    for path in (layout.replica, layout.history):
        assert "region" not in lake.rows(path)[0]["_gddl"], path
    assert (lake.done(named, JobOptions(action=Verify())).details or {})["verdict"] == "equal"


def test_explain_shows_them(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(region="eu-west-1", source_type="oracle", settle="0s")
    lake.load(spec)
    lake.change(spec, 1, [("D", 1, None)])
    lake.done(spec)
    details = lake.done(spec, JobOptions(action=Explain(key={"id": "1"}))).details or {}
    facts = [(one["region"], one["source_type"], one["columns"]) for one in details["changes"]]
    assert facts == [("eu-west-1", "oracle", None), ("eu-west-1", "oracle", ["id", "seq"])]


def test_shards_tell_their_own_origin(tmp_path: Path) -> None:
    sharded = Sharded(tmp_path, ("crm_eu", "crm_us"))
    origins = {"crm_eu": Origin(region="eu-west-1", source_type="oracle")}
    spec: TableSpec = replace(sharded.spec, shard_origins=origins, region="elsewhere")
    for shard in ("crm_eu", "crm_us"):
        sharded.change(shard, ("I", 1, shard))
    lake = Lake(tmp_path)
    lake.done(spec)
    rows = lake.rows(lake.layout(spec).changes)
    told = {row["_source"]: (row["_gddl"]["region"], row["_gddl"]["source_type"]) for row in rows}
    assert told == {"crm_eu": ("eu-west-1", "oracle"), "crm_us": ("elsewhere", None)}


def _log(path: str) -> list[list[dict[str, Any]]]:
    commits = sorted((Path(path) / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in commit.read_text().splitlines()] for commit in commits]
