"""Messages about wrong arguments, with what to write instead."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperGroup

_EXTRA = re.compile(r"Got unexpected extra arguments?.*")
_TABLE = re.compile(r"[^\s.]+\.[^\s.]+")


class Commands(TyperGroup):
    """The commands of `gddl`."""

    def invoke(self, ctx: Any) -> Any:
        """As the base class; a usage error of any command has a message of this module."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            # The class differs between versions of typer, some of which bring click along.
            message, command = getattr(error, "message", None), getattr(getattr(error, "ctx", None), "command", None)
            if isinstance(message, str) and command is not None:
                error.message = explained(message, [name for one in command.params for name in one.opts])  # type: ignore[attr-defined] # seen above
            raise


def explained(message: str, options: list[str]) -> str:
    """The message of a usage error.

    Args:
        options: of the command, with their dashes.
    """
    message = message.removeprefix("Value error, ")
    extra = message.rpartition("(")[2].rstrip(").").split() if _EXTRA.fullmatch(message) else []
    tables = [name for name in extra if _TABLE.fullmatch(name)]
    if not tables or "--table" not in options:
        return message
    return f"{message}; name tables with an option: {' '.join(f'--table {name}' for name in tables)}"
