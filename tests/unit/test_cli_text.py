"""Hostile values become visible text; lengths of time and numbers read well."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, count, duration, folded, safe


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("sales.orders", "sales.orders"),
        ("Größe 表 é", "Größe 表 é"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\ud800", r"\ud800"),
        ("\x9b31m", r"\x9b31m"),
        (None, ""),
        (0, "0"),
    ],
)
def test_hidden_characters_are_shown(value: object, shown: str) -> None:
    assert safe(value) == shown


def test_line_feeds_stay_where_lines_are_wanted() -> None:
    assert safe("a\nb\r", lines=True) == "a\nb\\r"


@given(st.text())
def test_what_is_shown_is_printable_and_encodable(text: str) -> None:
    shown = safe(text)
    assert all(char.isprintable() or char.isspace() for char in shown)
    assert not set(shown) & {"\n", "\r", "\t", "\x1b"}
    assert shown.encode("utf-8").decode("utf-8") == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0.0, "0ms"),
        (0.85, "850ms"),
        (12.34, "12.3s"),
        (60, "1m 00s"),
        (245, "4m 05s"),
        (3 * 3600 + 7 * 60, "3h 07m"),
        (47 * 3600, "47h 00m"),
        (52 * 3600, "2d 4h"),
        (-90, "-1m 30s"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(("number", "shown"), [(None, ""), (0, "0"), (1234567, "1,234,567")])
def test_counts_have_thousands_separators(number: int | None, shown: str) -> None:
    assert count(number) == shown


def test_markup_and_emoji_codes_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.say("[bold]x[/bold] [/nothing] :smile: \x1b[2J")
    screen.table(
        [ScreenColumn("[red]title[/red]"), ScreenColumn("n", "right")],
        [("[link=evil]a[/link]", Cell("[/]\x1b]0;t\x07"))],
    )
    screen.warn("[dim]w[/dim]")
    shown = capsys.readouterr()
    for text in (
        "[bold]x[/bold] [/nothing] :smile: \\x1b[2J",
        "[red]title[/red]",
        "[link=evil]a[/link]",
        "[/]\\x1b]0;t",
    ):
        assert text in shown.out
    assert "\x1b" not in shown.out + shown.err
    assert shown.err == "[dim]w[/dim]\n"


def test_long_cells_are_folded_never_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    Screen().table([ScreenColumn("a"), ScreenColumn("b")], [("x" * 70, "y" * 50)])
    shown = capsys.readouterr().out
    assert (shown.count("x"), shown.count("y")) == (70, 50)


def test_records_are_ascii_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().record({"table": "ü\u202e\x1b\ud800"})
    assert capsys.readouterr().out == '{"table": "\\u00fc\\u202e\\u001b\\ud800"}\n'


@pytest.mark.parametrize(
    ("line", "width", "lines"),
    [
        ("", 10, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("  kept at the left", 10, ["  kept at", "the left"]),
        (
            "[FOLDER_MISSING] /a/path/longer/than/the/line x",
            12,
            ["[FOLDER_MISSING]", "/a/path/longer/than/the/line", "x"],
        ),
        ("see `gddl errors list --table s.t`, then on", 12, ["see", "`gddl errors list --table s.t`,", "then on"]),
        ("a ` alone", 5, ["a `", "alone"]),
        ("日本 日本 日本", 9, ["日本 日本", "日本"]),
    ],
)
def test_lines_are_folded_between_words(line: str, width: int, lines: list[str]) -> None:
    assert folded(line, width).split("\n") == lines


@given(text=st.text(alphabet="ab-_/.` []日", max_size=80), width=st.integers(1, 40))
def test_folding_keeps_every_word_and_command(text: str, width: int) -> None:
    assert folded(text, width).split() == text.split()
    for code in re.findall(r"`[^`]+`", text):
        assert code in folded(text, width)


def test_a_message_is_folded_at_the_width_of_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    Screen().say("shop.planes: 0 of 3 accepted; 3 in quarantine again, see `gddl errors list --table shop.planes`")
    assert capsys.readouterr().out == (
        "shop.planes: 0 of 3 accepted; 3 in quarantine again, see\n`gddl errors list --table shop.planes`\n"
    )
