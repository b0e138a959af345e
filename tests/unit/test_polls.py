"""A pipeline's document of polls, which tasks may write at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.runtime.state import polls
from airflow_gddl.runtime.state.documents import PollDocument, place
from airflow_gddl.stores import open_store


def seen(polled: float) -> polls.PollRecord:
    return polls.PollRecord(polled=polled, files={"shop.a": 3}, waiting=frozenset({"shop.a"}))


@pytest.mark.parametrize("there", [True, False])
def test_of_two_polls_at_once_the_second_continues_the_first(there: bool, tmp_path: Path) -> None:
    store, lake = open_store(), str(tmp_path)

    def kept(before: polls.StoredPolls, polled: float) -> None:
        def change(document: PollDocument) -> PollDocument:
            return replace(polls.after(document, seen(polled)), next_poll=f"{document.next_poll}+{polled}")

        polls.keep(store, lake, "one", before, change)

    if there:
        kept(polls.read(store, lake, "one"), 1.0)
    first, second = polls.read(store, lake, "one"), polls.read(store, lake, "one")
    kept(first, 2.0)
    kept(second, 3.0)
    document = polls.read(store, lake, "one").document
    assert document.next_poll == ("+1.0+2.0+3.0" if there else "+2.0+3.0")
    assert (document.polled, document.tables["shop.a"].since) == (3.0, 1.0 if there else 2.0)


def test_a_damaged_document_is_replaced(tmp_path: Path) -> None:
    store, lake = open_store(), str(tmp_path)
    store.write(place(lake, "one", "poll"), b"{")
    before = polls.read(store, lake, "one")
    assert before.document == PollDocument()
    polls.keep(store, lake, "one", before, lambda document: polls.after(document, seen(2.0)))
    assert polls.read(store, lake, "one").document.polled == 2.0
