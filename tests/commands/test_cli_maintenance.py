"""`gddl maintain`, `erase`, `resync`, and what `verify` says of a source."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest

from tests.commands.test_cli import Shop, shop

__all__ = ["shop"]

KEPT = {
    "compacted": {"changes": {"files_before": 40, "files_after": 2}, "replica": {"files_before": 5, "files_after": 1}},
    "files_removed": 1200, "tombstones_removed": 3, "changes_cut": 0, "runs_removed": 7, "leftovers_removed": 0,
    "dry_run": True,
}  # fmt: skip


def test_maintain_shows_what_was_done(shop: Shop) -> None:
    answer = shop.gddl("maintain", "--table", "sales.orders", "--dry-run", results={"sales.orders": {"details": KEPT}})
    assert answer.status == 0
    assert (shop.order["options"]["action"]["name"], shop.order["options"]["action"]["dry_run"]) == ("maintain", True)
    assert "sales.orders succeeded 42 1,200 3 0 7 0" in [" ".join(line.split()) for line in answer.out.splitlines()]


ERASED = {
    "hash": "ab12", "table": "sales.orders", "removed": {"changes": 4, "replica": 1}, "files": ["/landing/x.parquet"],
    "stored_until": "2024-01-09T00:00:00+00:00", "done_at": "2024-01-02T00:00:00+00:00",
}  # fmt: skip


def test_erase_sends_the_whole_key_and_says_what_is_left(shop: Shop) -> None:
    results = {"sales.lines": {"details": ERASED}}
    answer = shop.gddl("erase", "--table", "sales.lines", "--key", "order_id=5", "--key", "n=x=y", results=results)
    assert answer.status == 0
    options = shop.order["options"]
    assert (options["action"]["name"], options["action"]["key"]) == ("erase", {"order_id": "5", "n": "x=y"})
    assert options["action"]["asked_by"]
    assert "erased; rows removed: changes 4, replica 1" in answer.out
    assert "after 2024-01-09T00:00:00+00:00" in answer.out
    assert "still in the landing file /landing/x.parquet" in answer.out


@pytest.mark.parametrize("parts", [["secret-value"], ["=5"], ["id=5", "id=6"]])
def test_a_key_that_is_none_is_refused_without_its_value(parts: list[str], shop: Shop) -> None:
    keys = [argument for part in parts for argument in ("--key", part)]
    answer = shop.gddl("erase", "--table", "sales.orders", *keys)
    assert answer.status == 2
    assert "KEY_INVALID" in answer.err
    assert "secret-value" not in answer.err
    assert not (shop.folder / "order.json").exists()


def test_a_personal_key_comes_from_a_file_or_standard_input(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shop.folder / "key.txt"
    file.write_text("\ufefforder_id=5\n\nn=x=y\n", encoding="utf-8")
    shop.gddl("erase", "--table", "sales.lines", "--key", f"@{file}", results={"sales.lines": {"details": ERASED}})
    assert shop.order["options"]["action"]["key"] == {"order_id": "5", "n": "x=y"}
    monkeypatch.setattr("sys.stdin", io.StringIO("order_id=6\n"))
    parts = ("--key", "@-", "--key", "n=z")
    shop.gddl("erase", "--table", "sales.lines", *parts, results={"sales.lines": {"details": ERASED}})
    assert shop.order["options"]["action"]["key"] == {"order_id": "6", "n": "z"}
    answer = shop.gddl("erase", "--table", "sales.lines", "--key", f"@{shop.folder}/none")
    assert (answer.status, "KEY_INVALID" in answer.err) == (2, True)


def test_reload_of_a_time_names_it_and_shows_an_ordinary_run(shop: Shop) -> None:
    results = {"sales.orders": {"files": 3, "rows_read": 50}}
    command = ("reload", "--from-files", "--table", "sales.orders", "--yes")
    answer = shop.gddl(*command, "--since", "2024-01-31", "--until", "2024-02-01T06:00:00+02:00", results=results)
    assert answer.status == 0
    asked = shop.order["options"]
    assert (asked["action"]["name"], asked["action"]["confirmed"]) == ("reload", True)
    assert asked["action"]["landed_since"] == "2024-01-31T00:00:00+00:00"
    assert asked["action"]["landed_until"] == "2024-02-01T06:00:00+02:00"
    assert "1 table: 1 succeeded; 50 rows read" in answer.out.splitlines()
    shop.gddl(*command, "--since", "24h", "--dry-run", results=results)
    asked = shop.order["options"]
    assert asked["action"]["name"] == "plan"
    asked["action"] = asked["action"]["of"]
    assert (
        86_300 < (datetime.now(UTC) - datetime.fromisoformat(asked["action"]["landed_since"])).total_seconds() < 90_000
    )


@pytest.mark.parametrize("option", [("--since", "yesterday"), ("--since", ""), ("--until", "")])
def test_reload_of_no_time(option: tuple[str, str], shop: Shop) -> None:
    """An empty one comes from a variable without a value; all files are not meant."""
    answer = shop.gddl("reload", "--from-files", "--table", "sales.orders", *option)
    assert (answer.status, "[OPTION_INVALID]" in answer.err) == (2, True)
    assert not (shop.folder / "order.json").exists()


ROWS_READ = {"sales.lines": {"details": {"resync": {"rows": 5000, "absent": 2, "files": 1}}}}


def resync_lines(shop: Shop, *args: str) -> dict[str, object]:
    """Options of the job of a resync of some rows of `sales.lines`."""
    answer = shop.gddl("resync", "--table", "sales.lines", *args, results=ROWS_READ)
    assert answer.status == 0, answer.err
    assert "sales.lines succeeded 5,000 2 1" in [" ".join(line.split()) for line in answer.out.splitlines()]
    options: dict[str, object] = shop.order["options"]
    assert (options["action"]["name"], options["full_listing"]) == ("resync_rows", False)
    return options


def test_resync_of_several_composite_keys(shop: Shop) -> None:
    file = shop.folder / "keys"
    file.write_text("order_id=7\nn=@b\n")
    options = resync_lines(
        shop, "--key", "order_id=5", "--key", "n=a", "--key", "n=b", "--key", "order_id=6", "--key", f"@{file}"
    )
    assert options["action"]["keys"] == [
        {"order_id": "5", "n": "a"}, {"n": "b", "order_id": "6"}, {"order_id": "7", "n": "@b"},
    ]  # fmt: skip


def test_resync_of_differences(shop: Shop) -> None:
    assert resync_lines(shop, "--differences")["action"]["differences"] is True


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--key", "order_id=5"), "the key of sales.lines is order_id, n, not order_id"),
        (("--key", "order_id=5", "--key", "n=1", "--key", "n=2"), "the key of sales.lines is order_id, n, not n"),
        (("--key", "5"), "not a value alone"),
        (("--key", "=5"), "is not COLUMN=VALUE"),
        (("--key", ""), "is not COLUMN=VALUE"),
        (("--key", "order_id=5", "--key", "n=1", "--differences"), "rows are chosen in two ways"),
        ((), "no rows are chosen"),
    ],
)
def test_resync_of_rows_that_are_not_named_well_starts_no_job(args: tuple[str, ...], said: str, shop: Shop) -> None:
    answer = shop.gddl("resync", "--table", "sales.lines", *args)
    assert answer.status == 2
    assert "KEY_INVALID" in answer.err
    assert said in " ".join(answer.err.split())


def test_resync_names_its_tables(shop: Shop) -> None:
    assert shop.gddl("resync").status == 2


@pytest.mark.parametrize("command", ["verify", "resync"])
def test_a_url_is_no_name_of_a_connection_and_is_not_shown(command: str, shop: Shop) -> None:
    url = "postgresql://u:hunter2@h/db"
    answer = shop.gddl(command, "--table", "sales.orders", "--source-connection", url)
    assert answer.status == 2
    assert "FIELD_VALUE" in answer.err
    assert "hunter2" not in answer.err + answer.out


def test_verify_shows_keys_that_differ_from_the_source(shop: Shop) -> None:
    key = {"key": '{"id": "7"}', "state": "missing", "settled": True}
    source = {"rows": 4, "source_rows": 5, "different": 1, "unsettled": 0, "keys": [key]}
    details = {"verdict": "different", "rows": 4, "expected_rows": 4, "keys": [], "source": source}
    answer = shop.gddl("verify", "--settle", "60", results={"sales.orders": {"details": details}})
    assert answer.status == 1
    assert shop.order["options"]["action"]["settle_seconds"] == 60
    (row,) = [line for line in answer.out.splitlines() if line.startswith("sales.orders")]
    assert row.split()[:5] == ["sales.orders", "different", "4", "4", "5"]
    assert '{"id": "7"} missing' in row


def test_a_key_file_that_cannot_be_read_is_refused_with_the_reason(shop: Shop) -> None:
    (shop.folder / "latin.txt").write_bytes(b"id=\xff")
    reasons = {"none": "No such file or directory", ".": "Is a directory", "latin.txt": "not UTF-8"}
    for name, reason in reasons.items():
        answer = shop.gddl("erase", "--table", "sales.orders", "--key", f"@{shop.folder}/{name}")
        remedy = "name a text file in UTF-8, or @-"
        expected = f"[KEY_INVALID] the file of the key can't be read: {reason}. Remedy: {remedy}\n"
        assert (answer.status, answer.err) == (2, expected)


def test_a_release_says_that_nothing_was_held(shop: Shop) -> None:
    answer = shop.gddl("release", "sweep", "--table", "sales.orders", results={"sales.orders": {"status": "skipped"}})
    assert (answer.status, answer.out.splitlines()[-2:]) == (
        0,
        ["1 table: 1 skipped; 0 rows read", "sales.orders: no rows are held, nothing was removed"],
    )


@pytest.mark.parametrize(("of", "code"), [("sweep", "SWEEP_HELD"), ("truncate", "TRUNCATE_HELD")])
def test_a_released_table_needs_no_attention(of: str, code: str, shop: Shop) -> None:
    warning = {"code": code, "message": "held"}
    for started, command, warnings in (("08", ("run",), [warning]), ("09", ("release", of), [])):
        moment = f"2024-01-01T{started}:00:00.000000+00:00"
        result = {"status": "succeeded", "run_id": started, "started_at": moment, "warnings": warnings}
        shop.gddl(*command, "--table", "sales.orders", results={"sales.orders": result})
        rows = map(json.loads, shop.gddl("status", "--json").out.splitlines())
        states = {row["table"]: row["attention"] for row in rows if "table" in row}
        assert states["sales.orders"] == [one["code"] for one in warnings]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ASKING = [
    (("erase", "--table", "sales.orders", "--key", "id=5"), "Erase one key (id) from all tables of sales.orders"),
    (("release", "sweep", "--table", "sales.orders"), "Remove the rows of sales.orders that"),
    (("rebuild", "--all"), "Rebuild all tables?"),
    (("run", "--full-refresh", "--all"), "Rebuild all tables?"),
]


@pytest.mark.parametrize(("command", "question"), ASKING, ids=[" ".join(command) for command, _ in ASKING])
def test_what_cannot_be_taken_back_asks_at_a_terminal(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], question: str
) -> None:
    def run(answer: str | None, *more: str) -> tuple[int, bool, str]:
        (shop.folder / "order.json").unlink(missing_ok=True)
        monkeypatch.setattr("sys.stdin", io.StringIO() if answer is None else Terminal(answer))
        found = shop.gddl(*command, *more, results={})
        return found.status, (shop.folder / "order.json").exists(), found.err + found.out

    status, ran, said = run("n\n")
    assert (status, ran) == (1, False)
    assert question in said
    assert run("y\n")[1]
    assert run("\n")[:2] == (1, False)
    for answer, more in (("n\n", "--yes"), ("n\n", "--dry-run"), (None, "--json")):
        if "sweep" in command and more == "--dry-run":
            continue  # the warning of each run counts the rows
        assert run(answer, more)[1], more
        assert question not in run(answer, more)[2], more


def test_a_dry_run_changes_nothing(shop: Shop) -> None:
    for command, action in (
        (("erase", "--table", "sales.orders", "--key", "id=5"), "explain"),
        (("reload", "--from-files", "--table", "sales.orders"), "plan"),
        (("rebuild", "--all"), "plan"),
    ):
        shop.gddl(*command, "--dry-run", "--json", results={})
        assert shop.order["options"]["action"]["name"] == action, command


@pytest.mark.parametrize(
    "command", [("rebuild",), ("run", "--full-refresh"), ("rebuild", "--all", "--table", "sales.orders")]
)
def test_a_rebuild_of_all_tables_has_to_be_meant(shop: Shop, command: tuple[str, ...]) -> None:
    answer = shop.gddl(*command)
    assert answer.status == 2
    assert "[OPTION_INVALID]" in answer.err
    assert not (shop.folder / "order.json").exists()
