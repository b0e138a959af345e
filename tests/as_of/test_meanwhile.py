"""What happens to tables, and to the documents of cuts, while a cut is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.consistent_cut import asked_moment, change_cut, chosen, cut_path, cuts, read_cut
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.rooms.actions.consistent_cut_rows import make
from tests.as_of.cuts import RefusedError
from tests.as_of.test_by_time import ACCOUNTS, ORDERS, Service, at, cuts_of, lake, service
from tests.harness.lake import Lake

__all__ = ["lake", "service"]


def _while_made(monkeypatch: pytest.MonkeyPatch, then: Callable[[], Any], *, first: bool) -> None:
    """Let something happen before a table is made, once its changes were looked at, or behind its commit."""

    def made(*arguments: Any) -> Any:
        if first:
            then()
        result = make(*arguments)
        if not first:
            then()
        return result

    monkeypatch.setattr("spark_jobs.rooms.actions.consistent_cut.make", made)


@pytest.mark.parametrize("first", [True, False])
def test_a_key_that_is_erased_meanwhile_is_in_no_table(
    lake: Lake, service: Service, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """An erasure that was over before the commit has not seen the table."""
    erase = JobOptions(action=Erase(key={"id": "1"}, asked_by="x"))
    _while_made(monkeypatch, lambda: lake.done(ACCOUNTS, erase), first=first)
    made = cuts_of(lake, ACCOUNTS)
    with pytest.raises(RefusedError) as found:
        made.make("cut", at(5).isoformat())
    assert found.value.code == "CUT_TABLE_CHANGED"
    assert not [path for path in (lake.root / "lake/_as_of").rglob("*") if path.is_file()]


def test_a_cut_that_is_dropped_meanwhile_leaves_no_table(
    lake: Lake, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    _while_made(monkeypatch, lambda: Storage().delete(cut_path(lake.roots.lake, "cut")), first=True)
    with pytest.raises(RefusedError) as found:
        cuts_of(lake, ACCOUNTS).make("cut", at(5).isoformat())
    assert found.value.code == "CUT_MISSING"
    assert not list((lake.root / "lake/_as_of").rglob("*.parquet"))


def test_changes_that_come_meanwhile_refuse_nothing(
    lake: Lake, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        service.change(ACCOUNTS, [(at(20), "U", 1, 0)])
        lake.done(ACCOUNTS)

    _while_made(monkeypatch, load, first=True)
    made = cuts_of(lake, ACCOUNTS)
    cut = made.make("cut", at(5).isoformat())
    assert [row["v"] for row in made.rows(cut, "s.accounts")] == [80, 120]


def test_a_table_that_is_loaded_again_meanwhile_is_in_no_cut(lake: Lake, service: Service) -> None:
    made, moment = cuts_of(lake, ACCOUNTS), at(5).isoformat()
    facts = made.facts(moment)
    service.load(ACCOUNTS, {1: 1}, loaded=at(100))
    lake.done(replace(ACCOUNTS, sweep_after="0s", sweep_limit=1.0))
    with pytest.raises(RefusedError) as found:
        made.made("cut", chosen(asked_moment(moment), facts), facts, asked=moment)
    assert found.value.code == "CUT_TABLE_CHANGED"


def test_changes_of_a_document_are_not_lost(lake: Lake, service: Service) -> None:
    """Two jobs have erased keys of two tables of a cut."""
    root = lake.roots.lake
    made = cuts_of(lake, ACCOUNTS, ORDERS)
    facts = made.facts(at(5).isoformat())
    made.made("cut", chosen(asked_moment(at(5).isoformat()), facts), facts, asked="x")
    others: list[int] = []

    def change(cut: Any) -> Any:
        if not others:
            others.append(1)
            change_cut(Storage(), root, "cut", lambda one: replace(one, asked="of another"))
        return replace(cut, begun_at="now")

    change_cut(Storage(), root, "cut", change)
    found = read_cut(Storage(), root, "cut")
    assert (found.asked, found.begun_at) == ("of another", "now")
    assert [one.name for one in cuts(Storage(), root)] == ["cut"]


def test_a_document_that_others_keep_changing_is_an_error_that_passes(
    lake: Lake, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts_of(lake, ACCOUNTS).make("cut", at(5).isoformat())
    monkeypatch.setattr(Storage, "swap_once", lambda *_: False)
    with pytest.raises(RetriableError) as found:
        change_cut(Storage(), lake.roots.lake, "cut", lambda one: replace(one, asked="x"))
    assert (found.value.code, found.value.where) == ("STATE_CONTENDED", cut_path(lake.roots.lake, "cut"))
