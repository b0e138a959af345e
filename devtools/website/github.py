"""Markdown as GitHub reads it, written so that Python-Markdown reads the same."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator

_ITEM = re.compile(r"^( *)([-*]|\d+\.) +")
_FENCE = re.compile(r"^ *(```|~~~)")
_ROW = re.compile(r"^ *\|")
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
_MARK = re.compile(r"^<!-- (run|install|shown|file: \S+) -->\n", re.MULTILINE)
_OPTION = re.compile(r"(?<!`)`(--[a-z][a-z-]*(?: [^`\s]{1,24})?)`(?!`)")
_STEP = 4
BETTER = {"semantics.md#rules-of-correctness": "rules.md", "../metadata/schema": "fields.md"}
"""Links that on GitHub lead to a text, and here to the page that is made of it and of the code."""


def for_site(markdown: str, uri: str, pages: Collection[str]) -> str:
    """
    Args:
        uri: the page's own path below docs/.
        pages: paths of all pages and pictures; links to anything else become plain text.
    """
    return "\n".join(_spaced(_links(_MARK.sub("", markdown), uri, pages).split("\n")))


def _links(text: str, uri: str, pages: Collection[str]) -> str:
    def mend(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(uri), target))
        if made := BETTER.get(there + (match[3] or "")):
            return f"[{words}]({posixpath.relpath(made, posixpath.dirname(uri) or '.')})"
        # The reader of the site sees no folder `docs`.
        return match[0].replace("[docs/", "[", 1) if there in pages else words

    return _LINK.sub(mend, text)


def _spaced(lines: list[str]) -> Iterator[str]:
    """An empty line before lists, tables and blocks of code, and four spaces of indent below an item of a list."""
    fence, before, widths = "", "", [0]
    parted = False
    for line in lines:
        marked = _FENCE.match(line)
        if fence:
            yield _shifted(line, widths)
            fence = "" if marked and marked[1] == fence else fence
            parted = True
        else:
            _leave(line, widths)
            item = _ITEM.match(line)
            if _opens(line, before, parted=parted):
                yield ""
            # A class of its own, since browsers would break an option after each hyphen.
            yield _OPTION.sub(r"`\1`{ .option }", _shifted(line, widths))
            fence = marked[1] if marked else ""
            # Below an item that holds more than its own lines the next one needs a gap, else it is taken for text.
            parted = not item and (parted or not line.strip() or bool(_ROW.match(line)))
            if item:
                widths.append(len(item[0]))
        before = line


def _opens(line: str, before: str, *, parted: bool) -> bool:
    """Whether a list, an item, a table or a block begins here, right below a line of something else."""
    if not before.strip():
        return False
    if _ITEM.match(line):
        return parted or not (_ITEM.match(before) or before.startswith(" "))
    if _ROW.match(line):
        return not _ROW.match(before)
    return bool(_FENCE.match(line))


def _leave(line: str, widths: list[int]) -> None:
    """Leave the items of lists that this line is not below."""
    if line.strip():
        indent = len(line) - len(line.lstrip())
        while len(widths) > 1 and indent < widths[-1]:
            widths.pop()


def _shifted(line: str, widths: list[int]) -> str:
    depth = len(widths) - 1
    if not depth or not line.strip():
        return line
    return " " * (_STEP * depth) + line[min(widths[-1], len(line) - len(line.lstrip())) :]
