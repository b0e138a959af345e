"""A code, how a table's problem of it ends, and texts for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_gddl.contract.basics import CLEARING, LOADS

if TYPE_CHECKING:
    from typing import Self

COMMITS = LOADS
"""Actions that commit batches."""
COUNTS = (*LOADS, *CLEARING)
"""Actions that count what they leave in the quarantine."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_TABLE = re.compile(r"--table T\b")
_NONE = ("nothing", "as the message says")


class Code(str):
    """A stable code: its text is the name, which never changes its meaning.

    Attributes:
        kind: how to react, as docs/codes.md lists; two with a comma where the run may go on.
        means: what it says, as Markdown.
        do: the remedy, as Markdown.
        ends: of a code of the state `attention`, the successful actions that may end it, unless they warn of it again;
            a `run` that had something to do. None: it is none.
        judged: it ends not by a lack of warnings: the action's own result says whether the problem is left, or
            nothing is left in quarantine but what this very action has refused.
        when_idle: whether a run without work still writes a record for this warning.
    """

    __slots__ = ("do", "ends", "judged", "kind", "means", "when_idle")
    kind: str
    means: str
    do: str
    ends: tuple[str, ...] | None
    judged: bool
    when_idle: bool

    def __new__(  # noqa: PLR0913 - all that is said of a code
        cls,
        name: str,
        kind: str,
        means: str,
        do: str = "as the message says",
        ends: tuple[str, ...] | None = None,
        *,
        judged: bool = False,
        when_idle: bool = False,
    ) -> Self:
        code = super().__new__(cls, name)
        code.kind, code.means, code.do = kind, means, do
        code.ends, code.judged, code.when_idle = ends, judged, when_idle
        return code

    def __reduce__(self) -> tuple[object, ...]:
        return str, (str(self),)

    @property
    def meaning(self) -> str:
        """What it says, without links."""
        return _LINK.sub(r"\1", self.means)

    def remedy(self, table: str = "T") -> str:
        """The remedy without links; its commands name this table. Empty where the message alone says it."""
        return "" if self.do in _NONE else _TABLE.sub(f"--table {table}", _LINK.sub(r"\1", self.do))
