"""The two consoles of the command: answers on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from airflow_gddl.contract.codec import plain

# Controls, invisible format and direction marks, lone surrogates, private use and line separators: what could move the
# cursor, reorder the line or hide a difference between two names.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_WORD = re.compile(r"\s*(?:`[^`]+`|\S)+")


def safe(value: object, *, lines: bool = False) -> str:
    r"""The value's text with every hidden character written as an escape such as `\x1b` or `\u202e`.

    Args:
        value: anything; null becomes an empty text.
        lines: keep line feeds, for messages of several lines.
    """
    text = "" if value is None else str(value)
    return "".join(
        char if (lines and char == "\n") or unicodedata.category(char) not in _HIDDEN else ascii(char)[1:-1]
        for char in text
    )


def duration(seconds: float | None) -> str:
    """`850ms`, `12.3s`, `4m 05s`, `3h 07m`, `2d 4h`; empty when null. Negative lengths keep their sign."""
    if seconds is None:
        return ""
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours < 48 else f"{hours // 24}d {hours % 24}h"


def count(number: int | None) -> str:
    """With thousands separated; empty when null."""
    return "" if number is None else f"{number:,}"


def counted(number: int, one: str) -> str:
    """`1 table`, `2 tables`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def folded(line: str, width: int) -> str:
    """Wrap a line between words at `width` cells.

    Wider words and `commands` are not broken, so that paths and commands can be copied.
    """
    lines, now = [], ""
    for word in _WORD.findall(line):
        if now.strip() and cell_len(now + word) > width:
            lines.append(now)
            now = word.lstrip()
        else:
            now += word
    return "\n".join([*lines, now])


_WIDTH_OF_A_PIPE = 200
_GAP = 3
_NOTHING = ("", "0")
Side = Literal["left", "right"]


@dataclass(frozen=True)
class Cell:
    """A value to show, with a rich style such as `red`; empty: plain."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class ScreenColumn:
    """A heading; numbers stand on the right.

    Attributes:
        spare: priority for hiding the column on a narrow terminal, the greatest first; 0: never.
    """

    title: str
    side: Side = "left"
    spare: int = 0


def number_columns(*titles: str) -> list[ScreenColumn]:
    """Headings of numbers."""
    return [ScreenColumn(title, "right") for title in titles]


class Screen:
    """Shows texts and tables. Markup is not interpreted, and control characters are escaped."""

    def __init__(self) -> None:
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def say(self, text: str, style: str = "") -> None:
        """Lines on standard output; wrapped between words, but not inside `a command`."""
        _print(self.out, text, style)

    def spans(self, cells: Iterable[Cell], *, error: bool = False) -> None:
        """A line on standard output, or on standard error, with a style for each part; never wrapped."""
        console = self.err if error else self.out
        console.print(Text.assemble(*(_text(cell) for cell in cells)), soft_wrap=True)

    def dictate(self, text: str) -> None:
        """Lines on standard output for copying: never wrapped."""
        self.out.print(Text(safe(text, lines=True)), soft_wrap=True)

    def warn(self, text: str, style: str = "") -> None:
        """The same on standard error."""
        _print(self.err, text, style)

    def record(self, value: object) -> None:
        """One line of JSON on standard output; ASCII only, independent of encoding and terminal."""
        self.records([plain(value)])

    def records(self, values: Iterable[Mapping[str, object]]) -> None:
        """A line for each of these plain values, all at once."""
        self.out.file.write("".join(json.dumps(value) + "\n" for value in values))
        self.out.file.flush()

    def table(
        self, headings: Iterable[ScreenColumn | str], rows: Iterable[Sequence[Cell | str]], *, error: bool = False
    ) -> None:
        """A table on standard output, or on standard error; values are never wrapped.

        If it is too wide, spare columns are hidden and named; if it still does not fit, each row becomes a block with
        one line for each value. Pipes without `COLUMNS` get all columns.
        """
        console = self.err if error else self.out
        columns = [one if isinstance(one, ScreenColumn) else ScreenColumn(one) for one in headings]
        shown = [[_text(cell) for cell in row] for row in rows]
        is_bounded = console.is_terminal or "COLUMNS" in os.environ
        kept = _kept(columns, shown, console.width) if is_bounded else list(range(len(columns)))
        if _width(_widths(columns, shown), kept) > console.width:
            self._blocks(columns, shown, error=error)
            return
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for number in kept:
            grid.add_column(columns[number].title, justify=columns[number].side, no_wrap=True)
        for row in shown:
            grid.add_row(*[row[number] for number in kept])
        console.print(grid)
        if len(kept) < len(columns):
            titles = ", ".join(column.title for number, column in enumerate(columns) if number not in kept)
            self.warn(f"hidden columns (narrow terminal): {titles}", "dim")

    def _blocks(self, columns: Sequence[ScreenColumn], rows: Sequence[Sequence[Text]], *, error: bool) -> None:
        """A block for each row: its first value, and below it a line for each other one that is not empty."""
        console = self.err if error else self.out
        longest = max(cell_len(column.title) for column in columns)
        for first, *others in rows:
            console.print(first, soft_wrap=True)
            for column, value in zip(columns[1:], others, strict=True):
                if value.plain not in _NOTHING:
                    console.print(Text(f"  {column.title:<{longest}}  ").append_text(value), soft_wrap=True)


def _print(console: Console, text: str, style: str) -> None:
    lines = [folded(line, console.width) for line in safe(text, lines=True).split("\n")]
    console.print(Text("\n".join(lines), style), soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        # A file or a pipe has no width; wrapping at 80 would break names.
        console.width = _WIDTH_OF_A_PIPE
    return console


def _kept(columns: Sequence[ScreenColumn], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """Indices of the columns that fit: empty columns are dropped first, then spare ones."""
    widths = _widths(columns, rows)
    filled = {0, *(number for row in rows for number, cell in enumerate(row) if cell.plain not in _NOTHING)}
    most = max((column.spare for column in columns), default=0) + 1
    worth = {number: column.spare if number in filled else most for number, column in enumerate(columns)}
    kept = list(range(len(columns)))
    while _width(widths, kept) > width:
        last = max(kept, key=lambda number: (worth[number], number))
        if not worth[last]:
            break
        kept.remove(last)
    return kept


def _widths(columns: Sequence[ScreenColumn], rows: Sequence[Sequence[Text]]) -> list[int]:
    """Cells that each column takes."""
    widths = [cell_len(column.title) for column in columns]
    for row in rows:
        for number, cell in enumerate(row):
            widths[number] = max(widths[number], *(cell_len(line) for line in cell.plain.split("\n")))
    return widths


def _width(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[number] + _GAP for number in kept) - _GAP


def _text(cell: Cell | str) -> Text:
    shown = cell if isinstance(cell, Cell) else Cell(cell)
    return Text(safe(shown.text, lines=True), shown.style)
