"""`gddl as-of`: make, list and drop cuts by the command, with its jobs in processes of their own."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.as_of.test_by_time import ACCOUNTS, ORDERS, Service, at, lake, service
from tests.harness.lake import Lake, read
from tests.one_task.commands import gddl

__all__ = ["lake", "service"]
AT = at(5).isoformat()


@pytest.fixture
def metadata(lake: Lake, service: Service) -> None:
    folder = lake.root / "metadata" / "tables"
    folder.mkdir(parents=True)
    (folder.parent / "gddl.yaml").write_text(json.dumps({"landing": lake.roots.landing, "lake": lake.roots.lake}))
    rows = [{"table": spec.table, "keys": ["id"], "settle": "0s"} for spec in (ACCOUNTS, ORDERS)]
    (folder / "rows.yaml").write_text(json.dumps({"source": "default", "tables": rows}))


def as_of(lake: Lake, *arguments: str, status: int = 0) -> tuple[list[dict[str, Any]], str]:
    return gddl(lake.root, "as-of", *arguments, status=status)


@pytest.mark.usefixtures("metadata")
def test_a_cut_is_made_listed_and_dropped(lake: Lake) -> None:
    (made,), _ = as_of(lake, "--source", "default", "--at", AT, "--name", "first")
    assert (made["moment"]["until"], made["made_at"] is not None) == (at(5).isoformat(timespec="microseconds"), True)
    paths = [str(lake.root / "lake" / one["folder"]) for one in made["tables"]]
    assert paths == [str(lake.root / "lake/_as_of/first/s" / name) for name in ("accounts", "orders")]
    assert [sorted((row["id"], row["v"]) for row in read(path)) for path in paths] == [
        [(1, 80), (2, 120)],
        [(0, 0), (1, 10)],
    ]
    assert as_of(lake, "list")[0] == [made]
    as_of(lake, "--source", "default", "--at", AT, "--name", "second")
    assert as_of(lake, "drop", "first")[0] == [{"cut": "first", "tables": ["s.accounts", "s.orders"]}]
    assert not (lake.root / "lake/_as_of/first").exists()
    assert [one["name"] for one in as_of(lake, "list")[0]] == ["second"]


@pytest.mark.usefixtures("metadata")
def test_some_tables_of_a_source_have_a_later_latest_moment(lake: Lake) -> None:
    (made,), _ = as_of(lake, "--source", "default", "--table", "s.accounts", "--name", "one")
    assert made["moment"]["until"] == (at(7) - timedelta(microseconds=1)).isoformat(timespec="microseconds")


@pytest.mark.usefixtures("metadata")
@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("--source", "default", "--at", "yesterday", "--name", "x"), "OPTION_INVALID", 2),
        (("--source", "default", "--at", "2024-01-01T12:00:00", "--name", "x"), "OPTION_INVALID", 2),
        (("--source", "default", "--name", "No name"), "OPTION_INVALID", 2),
        (("--source", "default"), "OPTION_INVALID", 2),
        (("--source", "other", "--name", "x"), "OPTION_INVALID", 2),
        (("--source", "default", "--at", "0/16B3740", "--name", "x"), "CUT_REFUSED", 2),
        (("--source", "default", "--at", at(6).isoformat(), "--name", "x"), "CUT_REFUSED", 2),
        (("drop", "x"), "CUT_MISSING", 2),
        (("--source", "default", "list"), "OPTION_INVALID", 2),
        (("--metadata", "elsewhere", "drop", "x"), "OPTION_INVALID", 2),
    ],
)  # fmt: skip
def test_refusals_leave_nothing(lake: Lake, arguments: tuple[str, ...], code: str, status: int) -> None:
    _, said = as_of(lake, *arguments, status=status)
    assert f"[{code}]" in said
    assert not (lake.root / "lake/_as_of").exists()
    assert as_of(lake, "list")[0] == []


@pytest.mark.usefixtures("metadata")
def test_a_name_is_taken_once(lake: Lake) -> None:
    as_of(lake, "--source", "default", "--at", AT, "--name", "first")
    assert "[OPTION_INVALID]" in as_of(lake, "--source", "default", "--at", AT, "--name", "first", status=2)[1]


@pytest.mark.usefixtures("metadata")
def test_a_killed_command_leaves_what_can_be_dropped(lake: Lake) -> None:
    as_of(lake, "--source", "default", "--at", AT, "--name", "first")
    path = lake.root / "lake/_gddl/cuts/first.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "made_at": None}))
    (listed,) = as_of(lake, "list")[0]
    assert listed["made_at"] is None
    as_of(lake, "drop", "first")
    assert not Path(lake.root / "lake/_as_of").exists()


@pytest.mark.usefixtures("metadata")
@pytest.mark.parametrize(
    "folder", ["s/orders", "_as_of/first/../../s/orders", "_as_of/first_2/s/orders", "_as_of/first/"]
)
def test_a_document_that_names_what_is_no_part_of_its_cut_removes_nothing(lake: Lake, folder: str) -> None:
    as_of(lake, "--source", "default", "--at", AT, "--name", "first")
    path = lake.root / "lake/_gddl/cuts/first.json"
    document = json.loads(path.read_text())
    document["tables"][1]["folder"] = folder
    path.write_text(json.dumps(document))
    before = sorted((lake.root / "lake").rglob("*"))
    assert "[LEDGER_DAMAGED]" in as_of(lake, "drop", "first", status=2)[1]
    assert "[LEDGER_DAMAGED]" in as_of(lake, "list", status=2)[1]
    assert sorted((lake.root / "lake").rglob("*")) == before


@pytest.mark.usefixtures("metadata")
def test_a_table_that_can_not_be_cut_is_named_and_nothing_is_made(lake: Lake) -> None:
    """Lines of the others say that they were looked at."""
    DeltaTable(lake.layout(ORDERS).changes).delete("id = 1")
    _, said = as_of(lake, "--source", "default", "--at", AT, "--name", "x", status=1)
    assert "nothing was made: a cut has all of its tables, and of s.orders it can't be made" in " ".join(said.split())
    assert as_of(lake, "list")[0] == []
    as_of(lake, "--source", "default", "--at", AT, "--name", "x", "--table", "s.accounts")
