"""The contract's own decoder and pydantic take the same values, and make the same of them."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.metadata.settings import TIER
from airflow_gddl.metadata.sources import CATALOG, SOURCE
from airflow_gddl.metadata.validation import TABLE, FieldShape, options_of

SHAPES: list[FieldShape[Any]] = [TABLE, TIER, CATALOG, SOURCE, options_of("dms"), options_of("debezium")]
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**63, 10**30, 0.0, 1.0, 0.5, -0.5, 1e300, "", "a", "1", "true", "null", "hard",
    "1d", "🙂", [], ["a"], [1], [None], ["a", "b"], [["a"]], {}, {"a": "b"}, {"a": 1}, {"a": None}, {"a": ["b"]},
    {"a": {"rule": "x > 0"}}, {"a": {"rule": "x > 0", "on": "warn", "at_most": 1}}, {"a": {"rule": 1}},
    {"a": {"columns": ["b"], "to": "s.t"}}, {"after": "1d"}, {"after": "1d", "action": "move", "to": "x"},
    {"chunk_rows": 1, "parallel": 2.0}, {"chunk_rows": 5}, {"new_column": "add"}, {"new_column": "x"},
    {"require": ["a"]}, {"unknown": 1}, {"assets": ["a"]}, {"assets": "a"}, [{"a": 1}], {"a": True}, {"a": 0.5},
]  # fmt: skip


def base(shape: FieldShape[Any]) -> dict[str, Any]:
    """The fewest values that are taken."""
    hints = typing.get_type_hints(shape.cls)
    required = [
        item.name
        for item in dataclasses.fields(shape.cls)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    ]
    return {
        name: ["a"] if typing.get_origin(hints[name]) is tuple else next(iter(words(hints[name])), "a.b")
        for name in required
    }


def cases() -> Iterator[tuple[FieldShape[Any], str]]:
    for shape in SHAPES:
        yield from ((shape, item.name) for item in dataclasses.fields(shape.cls))


def words(hint: Any) -> list[Any]:
    """The values of a literal."""
    inner = [word for one in typing.get_args(hint) for word in words(one)]
    return list(typing.get_args(hint)) if typing.get_origin(hint) is typing.Literal else inner


@pytest.mark.parametrize(("shape", "field"), [pytest.param(s, f, id=f"{s.name}.{f}") for s, f in cases()])
def test_both_take_the_same_values(shape: FieldShape[Any], field: str) -> None:
    taken = 0
    for value in (*ODD, *words(typing.get_type_hints(shape.cls)[field])):
        text = json.dumps({**base(shape), field: value})
        by_pydantic, by_us = validated(shape, text), decoded(shape, text)
        assert (by_pydantic is None) == (by_us is None), value
        assert repr(by_pydantic) == repr(by_us), value  # 1 and 1.0 are equal
        taken += by_us is not None
    assert taken > 0


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_both_refuse_unknown_and_missing_fields(shape: FieldShape[Any]) -> None:
    least = base(shape)
    assert decoded(shape, json.dumps(least)) == validated(shape, json.dumps(least)) is not None
    for values in ({**least, "unknown": 1}, *({n: v for n, v in least.items() if n != name} for name in least)):
        assert decoded(shape, json.dumps(values)) is validated(shape, json.dumps(values)) is None


def validated(shape: FieldShape[Any], text: str) -> Any:
    try:
        return shape.adapter.validate_json(text, strict=True)
    except ValidationError:
        return None


def decoded(shape: FieldShape[Any], text: str) -> Any:
    try:
        return decode(shape.cls, json.loads(text))
    except FatalError:
        return None
