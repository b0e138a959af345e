"""`gddl explain`: what reaches the job, and the whole text at 80 columns."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.cli.screen import Screen
from tests.commands.test_cli import Answer, Shop, shop

__all__ = ["shop"]


def change(op: str, state: str, **fields: Any) -> dict[str, Any]:
    known = {
        "op": op, "state": state, "sequence": None, "commit_ts": None, "generation": 1, "position": 0, "schema": 0,
        "applied_at": "2024-01-02T12:00:00.000000Z", "batch_id": "000000000001", "decided_by": "", "forced": False,
        "source_file": "/data/landing/sales/orders/LOAD00000001.parquet", "moved_from": None, "moved_to": None,
    }  # fmt: skip
    return known | fields


def update(state: str, number: int, batch: int, **fields: Any) -> dict[str, Any]:
    return change(
        "U", state, sequence=f"2024010200000{number}000000000000000000000", decided_by="sequence",
        commit_ts=f"2024-01-02T00:00:0{number}.000000Z", batch_id=f"{batch:012d}",
        source_file=f"/data/landing/sales/orders/20240102-00000{number}000.parquet", **fields,
    )  # fmt: skip


ROW = {"record": '{"id":42,"v":"\\u001b[31mc","price":1.50,"note":null}', **update("", 3, 3)}
FOUND: dict[str, Any] = {
    "keys": ['{"id": "42"}'], "outcome": "present", "verdict": "equal", "left_out": 0, "replica": [ROW],
    "changes": [change("R", "superseded"), update("late", 2, 4), update("winner", 3, 3)],
    "tombstone": None, "generation": 1, "swept": 1, "erased_at": None, "changes_cut_before": None,
    "batch_unfinished": False, "quarantine": {"records": [], "searched": 0, "unresolved": 0},
}  # fmt: skip


def reported(shop: Shop, found: dict[str, Any], *more: str) -> Answer:
    arguments = ("explain", "--table", "sales.orders", "--key", "42", *more)
    return shop.gddl(*arguments, results={"sales.orders": {"action": "explain", "details": found}})


@pytest.fixture
def narrow(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    shop.around = replace(shop.around, screen=Screen())
    return shop


PRESENT = """\
sales.orders {"id": "42"}: the row exists

1 R
  state        superseded
  generation   1
  file         LOAD00000001.parquet
  batch        1
2 U
  state        late
  generation   1
  sequence     20240102000002000000000000000000000
  higher by    sequence
  committed    2024-01-02T00:00:02Z
  file         20240102-000002000.parquet
  batch        4
3 U
  state        winner
  generation   1
  sequence     20240102000003000000000000000000000
  higher by    sequence
  committed    2024-01-02T00:00:03Z
  file         20240102-000003000.parquet
  batch        3

Change 3 (U) wins: its sequence is higher than that of change 2.
Late changes arrived in a later batch than a higher one, and were applied in no
column that it carries.
The replica holds, of batch 3, applied 2024-01-02T12:00:00Z:
  id     42
  v      \\x1b[31mc
  price  1.50
  note   null
"""


def test_the_full_output_at_80_columns(narrow: Shop) -> None:
    answer = reported(narrow, FOUND)
    assert answer.status == 0
    assert answer.out == PRESENT
    assert max(map(len, answer.out.splitlines())) <= 80


MOVED = """\
sales.orders {"id": "42"}: the row is deleted
The highest 1 of 6 changes:

1 D
  state        winner
  generation   1
  sequence     7
  file         2024/01/02/a.parquet
  batch        3r
  key changed  to {"id": "43"}

Change 1 (D) wins: there is no other.
The replica holds (marked as deleted), of batch 3, applied 2024-01-02T12:00:00Z:
  id  42
Tombstone, applied 2024-01-02T12:00:00Z:
  sequence  7
Not all changes were read (--limit), so the replica was not compared.
2 records of this key in quarantine:
  OP_UNKNOWN  not an operation (2024/01/02/a.parquet, batch 3r)
  NULL_KEY   (2024/01/02/a.parquet, batch 3r)
The quarantine was searched in part: 1,000 of 2,000 unresolved rows.
2 files could not be read, and may hold changes of this key.
The key was erased; asked for at 2024-01-02T11:00:00.250000Z.
Superseded changes before 2023-12-01T00:00:00Z were removed (changes_retention).
"""


def test_all_else_that_may_be_known_at_80_columns(narrow: Shop) -> None:
    last = change(
        "D", "winner", sequence=7, batch_id="000000000003r", moved_to='{"id": "43"}',
        source_file="s3://b/landing/sales/orders/2024/01/02/a.parquet",
    )  # fmt: skip
    bad = {"code": "OP_UNKNOWN", "reason": "not an operation", **{n: last[n] for n in ("source_file", "batch_id")}}
    quarantined = [bad, {**bad, "code": "NULL_KEY", "reason": None}]
    found = FOUND | {
        "outcome": "deleted", "verdict": None, "left_out": 5, "changes": [last], "tombstone": last,
        "replica": [{**ROW, "record": '{"id":42}', "deleted": True}], "erased_at": "2024-01-02T11:00:00.250000+00:00",
        "quarantine": {"records": quarantined, "searched": 1000, "unresolved": 2000, "unread_files": 2},
        "changes_cut_before": "2023-12-01T00:00:00.000000+00:00",
    }  # fmt: skip
    answer = reported(narrow, found)
    assert answer.out == MOVED
    assert max(map(len, answer.out.splitlines())) <= 80


def test_a_table_where_there_is_room(shop: Shop) -> None:
    answer = reported(shop, FOUND)
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert lines[2] == "change state generation sequence higher by committed file batch key changed"
    assert lines[4:7] == [
        "1 R superseded 1 LOAD00000001.parquet 1",
        "2 U late 1 20240102000002000000000000000000000 sequence 2024-01-02T00:00:02Z 20240102-000002000.parquet 4",
        "3 U winner 1 20240102000003000000000000000000000 sequence 2024-01-02T00:00:03Z 20240102-000003000.parquet 3",
    ]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"outcome": "swept", "swept": 2}, "swept: the full load of generation 2 lacks the row"),
        ({"outcome": "no_changes", "changes": [], "replica": []}, "no change is stored"),
        ({"changes": [update("swept", 3, 3)]}, "Change 1 (U) was the last: there is no other."),
        ({"changes": [update("winner", 3, 3, forced=True)]}, "applied regardless of its sequence (force_update)"),
        (
            {"verdict": "different"},
            "from these changes (different).\nCompare the whole table: `gddl verify --table sales.orders`",
        ),
        (
            {"verdict": "missing", "batch_unfinished": True},
            "(missing).\nA batch is not finished: run this command again",
        ),
        ({"replica": []}, "The replica has no row of this key."),
    ],
)
def test_explain_says_what_is_unusual_of_a_key(fields: dict[str, Any], line: str, shop: Shop) -> None:
    assert line in reported(shop, FOUND | fields).out


def test_json_is_the_result(shop: Shop) -> None:
    (record,) = reported(shop, FOUND, "--json").records
    assert (record["table"], record["details"]) == ("sales.orders", FOUND)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (["42"], {"": "42"}),
        (["id=4=2"], {"id": "4=2"}),
        (["order_id=1", "n=2"], {"order_id": "1", "n": "2"}),
        (["@-"], {"": "7"}),
        (["@-", "b=z"], None),
        (["1", "2"], None),
        (["=5"], None),
        ([""], None),
        (["@missing"], None),
    ],
)
def test_the_key_that_reaches_the_job(
    parts: list[str], key: dict[str, str] | None, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("7\n"))
    keys = [argument for part in parts for argument in ("--key", part)]
    table = "sales.lines" if key is not None and len(key) > 1 else "sales.orders"
    answer = shop.gddl("explain", "--table", table, *keys, "--limit", "7", results={table: {"details": FOUND}})
    if key is None:
        assert (answer.status, "[KEY_INVALID]" in answer.err) == (2, True)
        return
    options = shop.order["options"]
    assert options["action"] == {"name": "explain", "key": key, "limit": 7, "before_erasure": False}


def test_a_key_that_was_never_seen_ends_with_1(shop: Shop) -> None:
    error = {"code": "KEY_NOT_FOUND", "message": "[KEY_NOT_FOUND] no change"}
    results = {"sales.orders": {"status": "failed", "error": error}}
    answer = shop.gddl("explain", "--table", "sales.orders", "--key", "42", results=results, exit=1)
    assert (answer.status, answer.out) == (1, "")
    assert "sales.orders: [KEY_NOT_FOUND] no change" in answer.err


def test_a_table_that_is_unknown_ends_with_2(shop: Shop) -> None:
    answer = shop.gddl("explain", "--table", "sales.other", "--key", "42")
    assert (answer.status, "[TABLE_UNKNOWN]" in answer.err) == (2, True)


LINES = "the key of sales.lines is order_id, n, not"
NO_DB = "the connection 'NO_DB' is not set"


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (("explain", "orders", "--key", "nr=5"), "KEY_INVALID", "the key of sales.orders is id, not nr"),
        (("explain", "lines", "--key", "5"), "KEY_INVALID", f"{LINES} a value alone"),
        (("erase", "lines", "--key", "n=5", "--yes"), "KEY_INVALID", f"{LINES} n"),
        (("erase", "lines", "--key", "n=5", "--dry-run"), "KEY_INVALID", f"{LINES} n"),
        (("verify", "orders", "--source-connection", "NO_DB"), "SOURCE_CONNECTION_MISSING", NO_DB),
        (("resync", "orders", "--differences", "--source-connection", "NO_DB"), "SOURCE_CONNECTION_MISSING", NO_DB),
    ],
)
def test_a_mistake_of_the_user_ends_before_a_job_starts(
    shop: Shop, command: tuple[str, ...], code: str, text: str
) -> None:
    name, table, *more = command
    answer = shop.gddl(name, "--table", f"sales.{table}", *more)
    assert (answer.status, answer.out, answer.err.partition(". Remedy: ")[0]) == (2, "", f"[{code}] {text}")
    assert not (shop.folder / "order.json").exists()


def test_keys_are_named_without_case_and_as_files_have_them(shop: Shop) -> None:
    shop.write("metadata/tables/odd.yaml", "tables:\n  - {table: s.odd, keys: [__v, a b]}\n")
    answer = shop.gddl("explain", "--table", "s.odd", "--key", "__V_source=1", "--key", "A_B=2", exit=1)
    assert ("KEY_INVALID" in answer.err, (shop.folder / "order.json").exists()) == (False, True)
