"""The two consoles of the command: answers on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from airflow_gddl.cli.text import safe
from airflow_gddl.contract.codec import plain

_WIDTH_OF_A_PIPE = 200
Side = Literal["left", "right"]


@dataclass(frozen=True)
class Cell:
    """A value to show, with a rich style such as `red`; empty: plain."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Column:
    """A heading; numbers stand on the right."""

    title: str
    side: Side = "left"


class Screen:
    """Shows texts and tables. Nothing that it is given is read as markup, and control characters are escaped."""

    def __init__(self) -> None:
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def say(self, text: str, style: str = "") -> None:
        """A line (or several) on standard output."""
        self.out.print(Text(safe(text, lines=True), style))

    def spans(self, cells: Iterable[Cell]) -> None:
        """A line on standard output, each part of it in its own style; never folded."""
        self.out.print(Text.assemble(*(_text(cell) for cell in cells)), soft_wrap=True)

    def dictate(self, text: str) -> None:
        """A line on standard output that may be copied as it is: never folded."""
        self.out.print(Text(safe(text)), soft_wrap=True)

    def warn(self, text: str, style: str = "") -> None:
        """The same on standard error."""
        self.err.print(Text(safe(text, lines=True), style))

    def record(self, value: object) -> None:
        """One line of JSON on standard output; ASCII alone, so that no encoding or terminal can spoil it."""
        self.out.file.write(json.dumps(plain(value)) + "\n")
        self.out.file.flush()

    def clear(self) -> None:
        """Empty the terminal; a file or a pipe is left as it is."""
        self.out.clear()

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell | str]], *, error: bool = False) -> None:
        """A table on standard output, or on standard error."""
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column in columns:
            grid.add_column(column.title, justify=column.side, overflow="fold")
        for row in rows:
            grid.add_row(*[_text(cell) for cell in row])
        (self.err if error else self.out).print(grid)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        # A file or a pipe has no width; folding at 80 would tear names that someone greps for.
        console.width = _WIDTH_OF_A_PIPE
    return console


def _text(cell: Cell | str) -> Text:
    shown = cell if isinstance(cell, Cell) else Cell(cell)
    return Text(safe(shown.text, lines=True), shown.style)
