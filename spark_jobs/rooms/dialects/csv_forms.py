"""Forms that lines of CSV without a header have: the operation or none, and columns, of which some were added later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from airflow_gddl.contract.extensions import DmsOptions

_LINES = 100
"""How many lines say which form a file has."""
_OF_KIND = {"load": ("I", "R"), "change": ("I", "U", "D", "T")}


def is_operation(text: str | None, kind: str) -> bool:
    """Whether a field has an operation of files of this kind, which DMS writes before the columns."""
    return (text or "").strip().upper() in _OF_KIND.get(kind, ())


@dataclass(frozen=True)
class CsvForms:
    """
    Attributes:
        columns: of each form, the newest last: each has a column more.
        are_changes: lines may begin with an operation; those of an export of a whole table never do.
    """

    columns: tuple[tuple[str, ...], ...]
    are_changes: bool = True

    @classmethod
    def of(cls, options: DmsOptions) -> CsvForms:
        added = [name for name in options.csv_added if name in options.csv_columns]
        later = [frozenset(added[number:]) for number in range(len(added) + 1)]
        columns = tuple(tuple(name for name in options.csv_columns if name not in names) for names in later)
        return cls(columns, bool(options.op_column))

    @property
    def newest(self) -> tuple[str, ...]:
        return self.columns[-1]

    def number(self, width: int, *, has_operation: bool) -> int | None:
        """The form of lines with so many fields; None: they have none."""
        widths = [len(names) + has_operation for names in self.columns]
        return widths.index(width) if width in widths else None

    def of_lines(self, lines: Iterable[list[str]], kind: str) -> tuple[int, bool] | None:
        """The form of a file by its first lines, and whether the operation comes first; None: no line has one.

        The first line decides that has an operation in its first field, or none, and as many fields as its form then:
        a text that is copied as it is may have further delimiters. Where no line has, the first field does not count.
        Whether other lines agree is not known yet.
        """
        first: list[str] = []
        for fields in islice(lines, _LINES):
            begins = self.are_changes and is_operation(fields[0], kind)
            if (form := self.number(len(fields), has_operation=begins)) is not None:
                return form, begins
            first = first or fields
        if not self.are_changes:
            return None
        begins = is_operation(first[0], kind)
        form = self.number(len(first), has_operation=not begins)
        return None if form is None else (form, not begins)
