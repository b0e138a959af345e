"""Messages of many tables that say the same are shown once, those that say other things never together."""

from __future__ import annotations

import pytest

from airflow_gddl.cli import job
from airflow_gddl.contract.alike import MANY, Group, Message, grouped, the_same_in
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.reporting.results import explained

TEXT = "key column 'nokey' is missing in {} of 7 files (/landing/shop/{}/LOAD00000001.parquet). Remedy: correct keys"


def of_tables(count: int) -> list[Message]:
    """An error of each table, with its folder and a number of its own."""
    return [Message(f"shop.t{n:02d}", "KEY_COLUMN_MISSING", TEXT.format(n, f"t{n:02d}")) for n in range(count)]


def test_many_that_differ_in_names_and_numbers_are_one() -> None:
    messages = of_tables(MANY + 2)
    (group,) = grouped(messages)
    assert (group.tables, group.text) == (("shop.t00",), messages[0].text)
    assert group.others == tuple(f"shop.t{n:02d}" for n in range(1, MANY + 2))


def test_few_are_shown_one_by_one() -> None:
    assert [group.others for group in grouped(of_tables(MANY))] == [()] * MANY


def test_equal_texts_are_one_however_few() -> None:
    found = grouped([Message("a.a", "X", "no"), Message("a.b", "X", "no"), Message("a.b", "Y", "no")])
    assert found == [Group("X", "no", ("a.a", "a.b")), Group("Y", "no", ("a.b",))]


@pytest.mark.parametrize("text", ["key column 'c{}' is missing", "column c{} of s is text", "it is {}x"])
def test_messages_about_other_things_stay_apart(text: str) -> None:
    messages = [Message(f"s.t{n}", "X", text.format(n)) for n in range(2 * MANY)]
    assert len(grouped(messages)) == 2 * MANY


def test_a_table_s_name_in_the_text_is_not_a_difference() -> None:
    (group,) = grouped([Message(f"b:s.t{n}", "X", f"s.t{n} waits for b:s.t{n}") for n in range(MANY + 1)])
    assert len(group.others) == MANY


def test_the_sentence_names_a_few() -> None:
    assert the_same_in(["a", "b"], "tables") == "The same in 2 more tables: a, b."
    assert the_same_in(["a", "b", "c", "d"], "rows") == "The same in 4 more rows: a, b, c and 1 others."


def failed(count: int) -> list[JobResult]:
    return [
        JobResult(table=one.table, status="failed", error=ErrorInfo(code=one.code, message=f"[{one.code}] {one.text}"))
        for one in of_tables(count)
    ]


def test_a_task_s_failure_has_one_text_and_every_name() -> None:
    text = explained(failed(12), 12)
    assert text.count("Remedy") == 1
    assert all(f"shop.t{n:02d}" in text for n in range(12))


def test_a_command_s_lines() -> None:
    said: list[str] = []
    job.show_messages(lambda text, _: said.append(text), of_tables(12), "red")
    (line,) = said
    assert line.startswith("shop.t00: [KEY_COLUMN_MISSING] key column 'nokey' is missing")
    assert line.endswith("Remedy: correct keys. The same in 11 more tables: shop.t01, shop.t02, shop.t03 and 8 others.")
