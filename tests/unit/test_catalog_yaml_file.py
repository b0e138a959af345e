"""The YAML reader: plain values, lines, and the same from the C parser and the Python one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from airflow_gddl.contract.errors import FieldPath
from airflow_gddl.metadata import files
from airflow_gddl.metadata.problems import DocumentError, Refused, position_of

TEXT = """
a: 1
b: [x, -2.5, 1e3, ~, '1', "tab\\tbed", 0x1F, 1_000, 2024-01-01, .inf]
c:
  d: {e: true, f: False, g: no}
  h: |
    two
    lines
i: !!str 12
j: !!int "12"
k: &anchor [1, {l: 2}]
m: *anchor
n:
"""
VALUE = {
    "a": 1,
    "b": ["x", -2.5, 1000.0, None, "1", "tab\tbed", "0x1F", "1_000", "2024-01-01", ".inf"],
    "c": {"d": {"e": True, "f": False, "g": "no"}, "h": "two\nlines\n"},
    "i": "12",
    "j": 12,
    "k": [1, {"l": 2}],
    "m": [1, {"l": 2}],
    "n": None,
}


def refusals(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Refused]]:
    """Every `Refused` in a value, with its path."""
    if isinstance(value, Refused):
        yield path, value
    elif isinstance(value, dict | list):
        for part, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from refusals(item, (*path, part))


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOADER", getattr(yaml, request.param))


@pytest.mark.usefixtures("parser")
def test_values_are_read_with_their_lines() -> None:
    value = files.read_yaml(TEXT)
    assert value == VALUE
    assert list(refusals(value)) == []
    paths: list[tuple[str | int, ...]] = [("a",), ("b", 3), ("c", "d", "f"), ("c", "h"), ("k", 1, "l"), ("c", "gone")]
    assert [position_of(value, path) for path in paths] == [(2, 1), (3, 19), (5, 16), (6, 3), (11, 17), (4, 1)]


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2", [(("a",), "DOCUMENT_INVALID")]),
        ("a: !x 1\nb: !y [1]\nc: ok", [(("a",), "DOCUMENT_INVALID"), (("b",), "DOCUMENT_INVALID")]),
        ("a: !!python/name:os.system ''", [(("a",), "DOCUMENT_INVALID")]),
        ("a: &a [*a]", [(("a", 0), "DOCUMENT_INVALID")]),
        ("a: &a {b: 1}\nc: {<<: *a, d: 1}", [(("c", "<<"), "DOCUMENT_INVALID")]),
        ("? {a: b}\n: c\nd: e", [(("?",), "DOCUMENT_INVALID")]),
        ("a: &a x\n*a : y", [(("?",), "DOCUMENT_INVALID")]),
    ],
)  # fmt: skip
def test_refused_values_keep_their_positions(text: str, expected: list[tuple[Any, str]]) -> None:
    assert [(path, refused.code) for path, refused in refusals(files.read_yaml(text))] == expected


@pytest.mark.usefixtures("parser")
def test_aliases_are_counted_by_what_they_stand_for() -> None:
    lines = ["a0: &a0 [" + ", ".join("x" * 10) + "]"]
    lines += [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]" for i in range(9)]
    value = files.read_yaml("\n".join(lines))
    assert isinstance(value["a4"][0], Refused)
    assert value["a2"][9][9] == list("x" * 10)


@pytest.mark.usefixtures("parser")
def test_nesting_is_cut_and_endless_nesting_stops() -> None:
    value = files.read_yaml("{a: " + "[" * 200 + "]" * 200 + ", b: 1}")
    ((path, refused),) = refusals(value)
    assert (len(path), refused.code, value["b"]) == (files.MAX_DEPTH, "DOCUMENT_INVALID", 1)
    with pytest.raises(DocumentError, match="nested too deeply"):
        files.read_yaml("[" * 600 + "]" * 600)


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("a: 1\nb: @x\n", 2, "can't start with @ unquoted"),
        ("a: `x`\n", 1, "can't start with ` unquoted"),
        ("a: %x\n", 1, "can't start with % unquoted"),
        ("a:\n\tb: 1\n", 2, "blanks, not tabs"),
        ("a: 'x\n", 2, "quotes"),
    ],
)
def test_errors_have_lines_and_remedies(text: str, line: int, remedy: str) -> None:
    with pytest.raises(DocumentError) as error:
        files.read_yaml(text)
    assert error.value.position is not None
    assert (error.value.code, error.value.position.line) == ("DOCUMENT_INVALID", line)
    assert remedy in error.value.remedy


def test_an_empty_text_is_null() -> None:
    assert files.read_yaml("") is None
    assert files.read_yaml("# nothing\n") is None
