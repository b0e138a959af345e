"""The two consoles of the command: answers on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from airflow_gddl.cli.text import safe
from airflow_gddl.contract.codec import plain

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
        spare: what a terminal too narrow for the table does without first, the greatest before others; 0: never.
    """

    title: str
    side: Side = "left"
    spare: int = 0


class Screen:
    """Shows texts and tables. Nothing that it is given is read as markup, and control characters are escaped."""

    def __init__(self) -> None:
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def say(self, text: str, style: str = "") -> None:
        """A line (or several) on standard output; folded between words alone."""
        _print(self.out, text, style)

    def spans(self, cells: Iterable[Cell], *, error: bool = False) -> None:
        """A line on standard output, or on standard error, each part of it in its own style; never folded."""
        console = self.err if error else self.out
        console.print(Text.assemble(*(_text(cell) for cell in cells)), soft_wrap=True)

    def dictate(self, text: str) -> None:
        """A line on standard output that may be copied as it is: never folded."""
        self.out.print(Text(safe(text)), soft_wrap=True)

    def warn(self, text: str, style: str = "") -> None:
        """The same on standard error."""
        _print(self.err, text, style)

    def record(self, value: object) -> None:
        """One line of JSON on standard output; ASCII alone, so that no encoding or terminal can spoil it."""
        self.records([plain(value)])

    def records(self, values: Iterable[Mapping[str, object]]) -> None:
        """A line for each of these plain values, all at once."""
        self.out.file.write("".join(json.dumps(value) + "\n" for value in values))
        self.out.file.flush()

    def clear(self) -> None:
        """Empty the terminal; a file or a pipe is left as it is."""
        self.out.clear()

    def table(
        self, columns: Sequence[ScreenColumn], rows: Iterable[Sequence[Cell | str]], *, error: bool = False
    ) -> None:
        """A table on standard output, or on standard error; a terminal that is too narrow is told what is left out."""
        console = self.err if error else self.out
        shown = [[_text(cell) for cell in row] for row in rows]
        kept = _kept(columns, shown, console.width) if console.is_terminal else list(range(len(columns)))
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for number in kept:
            grid.add_column(columns[number].title, justify=columns[number].side, overflow="fold")
        for row in shown:
            grid.add_row(*[row[number] for number in kept])
        console.print(grid)
        if len(kept) < len(columns):
            titles = ", ".join(column.title for number, column in enumerate(columns) if number not in kept)
            self.warn(f"left out, for the terminal is narrow: {titles}", "dim")


def _print(console: Console, text: str, style: str) -> None:
    # A word longer than the line stays whole: a folded path or command can't be copied.
    console.print(Text(safe(text, lines=True), style), overflow="ignore", crop=False)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        # A file or a pipe has no width; folding at 80 would tear names that someone greps for.
        console.width = _WIDTH_OF_A_PIPE
    return console


def _kept(columns: Sequence[ScreenColumn], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """Numbers of the columns that fit: those in which nothing stands go first, then those that can be spared."""
    widths = [cell_len(column.title) for column in columns]
    blank = [number > 0 for number in range(len(columns))]
    for row in rows:
        for number, cell in enumerate(row):
            widths[number] = max(widths[number], *(cell_len(line) for line in cell.plain.split("\n")))
            blank[number] = blank[number] and cell.plain in _NOTHING
    most = max((column.spare for column in columns), default=0) + 1
    worth = {number: most if blank[number] else column.spare for number, column in enumerate(columns)}
    kept = list(range(len(columns)))
    while sum(widths[number] + _GAP for number in kept) - _GAP > width:
        last = max(kept, key=lambda number: (worth[number], number))
        if not worth[last]:
            break
        kept.remove(last)
    return kept


def _text(cell: Cell | str) -> Text:
    shown = cell if isinstance(cell, Cell) else Cell(cell)
    return Text(safe(shown.text, lines=True), shown.style)
