"""Values from metadata and data as safe text for terminals."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len

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
    return "".join(char if _shown(char, lines) else ascii(char)[1:-1] for char in text)


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


def _shown(char: str, lines: bool) -> bool:
    return (lines and char == "\n") or unicodedata.category(char) not in _HIDDEN
