"""Columns whose names change by case, or by characters that Delta refuses, in the middle of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LocalPort
from tests.debezium.probing import event, text, wrapped
from tests.debezium.topic import Topic

PROTECTED = "ada@example.org"
RULES: tuple[dict[str, Any], ...] = (
    {"exclude_columns": ["email"]}, {"exclude_columns": ["EMAIL"]}, {"mask": {"email": "hash"}},
    {"mask": {"Email": "null"}}, {"columns": ["id", "v"]},
    {"exclude_columns": ["email"], "before_image_prefix": "was_"},
)  # fmt: skip


def _changes(first: str, then: str) -> list[dict[str, Any]]:
    """The column is respelled between two transactions; an update tells the row before, and one value is no number."""
    return [
        event("c", {"id": 1, "v": 1, first: PROTECTED}, 10), event("c", {"id": 2, "v": 2, first: PROTECTED}, 11),
        event("u", {"id": 1, "v": 3, then: PROTECTED}, 12, before={"id": 1, "v": 1, then: PROTECTED}),
        event("c", {"id": 3, "v": "x", then: PROTECTED}, 13),
    ]  # fmt: skip


def _stored(topic: Topic) -> str:
    """All values of all tables of the lake."""
    tables = [topic.change_rows(), topic.errors(), topic.lake.rows(topic.lake.layout(topic.spec).replica)]
    return json.dumps(tables, default=str)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize(("first", "then"), [("email", "EMAIL"), ("EMAIL", "email"), ("Email", "email")])
def test_what_protects_a_column_holds_for_each_row(
    engine: LocalPort, tmp_path: Path, rules: dict[str, Any], first: str, then: str
) -> None:
    topic = Topic(engine, tmp_path, options={"types": {"v": "int"}}, **rules)
    topic.land(text(*_changes(first, then)))
    topic.run()
    assert PROTECTED not in _stored(topic)
    assert topic.replica("id", "v") == [(1, 3), (2, 2)]
    assert [row["code"] for row in topic.errors()] == ["CAST_FAILED"]


def test_what_protects_a_column_holds_in_the_schema_of_each_record(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, mask={"e_mail": "hash"})
    named = [
        wrapped(
            {"id": {"type": "int64"}, name: {"type": "string"}}, event("c", {"id": number, name: PROTECTED}, number)
        )
        for number, name in enumerate(("e mail", "e_mail", "E_MAIL"), 1)
    ]
    topic.land("".join(named))
    topic.run()
    assert PROTECTED not in _stored(topic)
    assert [(number, len(hashed)) for number, hashed in topic.replica("id", "e_mail")] == [(1, 64), (2, 64), (3, 64)]


def test_names_that_a_row_has_together_are_two_columns(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, exclude_columns=["email"])
    topic.land(
        text(event("c", {"id": 1, "email": PROTECTED, "EMAIL": "public"}, 10), event("c", {"id": 2, "EMAIL": "p"}, 11))
    )
    topic.run()
    assert PROTECTED not in _stored(topic)
    assert topic.replica("id", "EMAIL") == [(1, "public"), (2, "p")]
