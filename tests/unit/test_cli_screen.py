"""Tables on terminals of any width: columns are left out, values are never torn, and pipes get all."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from airflow_gddl.cli.repair import show_rows
from airflow_gddl.cli.screen import Screen, ScreenColumn, _kept
from airflow_gddl.contract.result import JobResult

COLUMNS = [
    ScreenColumn("table"),
    ScreenColumn("state", spare=1),
    ScreenColumn("rows", "right"),
    ScreenColumn("last success", spare=2),
]
ROW = ["shop.a_rather_long_name", "fresh", "12", "2026-11-20T21:42:37+00:00"]


def shown(width: int, columns: Sequence[ScreenColumn], rows: Sequence[Sequence[str]], *, terminal: bool = True) -> str:
    screen = Screen()
    kept = io.StringIO()
    screen.out = Console(file=kept, width=width, force_terminal=terminal, color_system=None, highlight=False)
    screen.err = Console(file=kept, width=width, force_terminal=terminal, color_system=None, highlight=False)
    screen.table(columns, rows)
    return kept.getvalue()


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(80, []), (66, []), (65, ["last success"]), (38, ["last success"]), (37, ["state", "last success"])],
)
def test_a_narrow_terminal_does_without_what_can_be_spared(width: int, left_out: list[str]) -> None:
    answer = shown(width, COLUMNS, [ROW])
    table, _, reported = " ".join(answer.split()).partition(" hidden columns (narrow terminal): ")
    assert reported == ", ".join(left_out)
    for column, value in zip(COLUMNS, ROW, strict=True):
        assert (value in table) == (column.title not in left_out)


def test_empty_columns_are_hidden_first() -> None:
    columns = [*COLUMNS, ScreenColumn("waiting", "right"), ScreenColumn("errors", "right")]
    answer = shown(80, columns, [[*ROW, "", "0"], [*ROW, "", "3"]])
    assert answer.splitlines()[-1] == "hidden columns (narrow terminal): waiting"
    assert "errors" in answer


def test_a_pipe_gets_all() -> None:
    wide = shown(80, COLUMNS, [ROW], terminal=False)
    assert "hidden" not in wide
    assert all(value in wide for value in ROW)
    assert shown(40, COLUMNS, [ROW, ["b", "", "0", "x"]], terminal=False).splitlines() == [
        "shop.a_rather_long_name",
        "  state         fresh",
        "  rows          12",
        "  last success  2026-11-20T21:42:37+00:00",
        "b",
        "  last success  x",
    ]


def test_columns_of_ci_are_those_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "65")
    assert "hidden columns (narrow terminal): last success" in shown(65, COLUMNS, [ROW], terminal=False)


@given(
    values=st.lists(st.text("abc. /", min_size=1, max_size=60), min_size=3, max_size=3), width=st.integers(20, 120),
    terminal=st.booleans(),
)  # fmt: skip
def test_no_value_is_ever_folded(values: list[str], width: int, terminal: bool) -> None:
    columns = [ScreenColumn("first"), ScreenColumn("second", "right"), ScreenColumn("third")]
    row = [f"x{value}x" for value in values]
    answer = shown(width, columns, [row], terminal=terminal)
    assert all(value in answer for value in row)
    assert "hidden" not in answer


@given(
    table=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4), st.booleans()), min_size=1, max_size=12),
    width=st.integers(1, 200),
)
def test_no_more_is_left_out_than_has_to_be(table: list[tuple[int, int, bool]], width: int) -> None:
    columns = [
        ScreenColumn("c" * size, spare=0 if number == 0 else spare) for number, (size, spare, _) in enumerate(table)
    ]
    row = [Text("" if number and blank else "v") for number, (_, _, blank) in enumerate(table)]
    kept = _kept(columns, [row], width)

    def needed(numbers: list[int]) -> int:
        return sum(len(columns[number].title) + 3 for number in numbers) - 3

    def worth(number: int) -> int:
        return 9 if number and table[number][2] else columns[number].spare

    gone = [number for number in range(len(columns)) if number not in kept]
    assert 0 in kept
    assert needed(kept) <= width or not any(map(worth, kept))
    assert all(worth(one) >= worth(other) for one in gone for other in kept)
    # The last one that went had to: with it, and all that is worth as much and stands before it, there is no room.
    if gone:
        last = min(gone, key=lambda number: (worth(number), number))
        assert needed([*kept, last]) > width


def test_a_quarantined_row_is_a_line_a_value() -> None:
    record = '{"v": "' + "long " * 60 + '"}'
    row = {"code": "OP_UNKNOWN", "reason": "not an operation", "column": None, "record": record, "source_file": "/l/f"}
    result = JobResult(
        table="shop.t", run_id="r", status="succeeded", mode="incremental", details={"unresolved": 1, "rows": [row]}
    )
    screen = Screen()
    kept = io.StringIO()
    screen.out = Console(file=kept, width=80, highlight=False)
    show_rows(screen, result)
    assert kept.getvalue().splitlines() == [
        "shop.t: 1 in quarantine",
        "",
        "OP_UNKNOWN  not an operation",
        f"  record       {record}",
        "  source_file  /l/f",
    ]
