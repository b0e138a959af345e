"""Forms that lines of CSV without a header have: the operation or none, and columns, of which some were added later."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract.extensions import DmsOptions

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
        """The form of lines with so many fields; null: they have none."""
        widths = [len(names) + has_operation for names in self.columns]
        return widths.index(width) if width in widths else None

    def of_first(self, fields: list[str], kind: str) -> tuple[int, bool] | None:
        """The form of a file by its first line, and whether the operation comes first; null: it has none.

        Where the number of fields fits both, the first field decides. Whether the others agree is not known yet.
        """
        begins = self.are_changes and is_operation(fields[0], kind)
        for has_operation in (begins, not begins) if self.are_changes else (False,):
            if (form := self.number(len(fields), has_operation=has_operation)) is not None:
                return form, has_operation
        return None
