"""docs/codes.md, and codes as links: each of its rows has an anchor, and whatever names a code leads there.

`python -m devtools.website.codes` writes the page from the register of codes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection
from pathlib import Path

from airflow_gddl.contract.codes import SECTIONS, Code

_PAGE = Path(__file__).parents[2] / "docs" / "codes.md"
_LINE = re.compile(r"^\| `([A-Z][A-Z0-9_]+)` \| (.+) \|$", re.MULTILINE)
_ROW = re.compile(r"^\| `([A-Z][A-Z0-9_]+)` \|", re.MULTILINE)
_NAMED = re.compile(r"(?<![\[`])`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`(?!`)")
_WORDS = re.compile(r"(?<=<code>)[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?=</code>)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def with_anchors(page: str) -> str:
    """The page of codes: `codes.html#table_busy` leads to the row of `TABLE_BUSY`."""
    return _ROW.sub(lambda match: f'| <a id="{match[1].lower()}"></a>`{match[1]}` |', page)


def for_search(root: Path) -> list[dict[str, str]]:
    """A document of the search for each code, else titles of pages that hold half of its words would come first."""
    page = (root / "docs" / "codes.md").read_text(encoding="utf-8")
    return [
        {"location": f"codes.html#{code.lower()}", "title": code, "text": said.replace(" | ", "; ").replace("`", "")}
        for code, said in _LINE.findall(page)
    ]


def breakable(html: str) -> str:
    """HTML in which a code may go over to the next line after a `_`, as it has to in a table on a phone."""
    return _WORDS.sub(lambda match: match[0].replace("_", "_<wbr>"), html)


def linked(page: str, codes: Collection[str], uri: str) -> str:
    """Another page, its codes as links; not those in headings, in links or in blocks of code.

    Args:
        uri: the page's path below docs/.
    """
    there = posixpath.relpath("codes.md", posixpath.dirname(uri) or ".")

    def link(match: re.Match[str]) -> str:
        return f"[`{match[1]}`]({there}#{match[1].lower()})" if match[1] in codes else match[0]

    parts, last = [], 0
    for block in _FENCE.finditer(page):
        parts += [_outside(page[last : block.start()], link), block[0]]
        last = block.end()
    return "".join([*parts, _outside(page[last:], link)])


def _outside(text: str, link: Callable[[re.Match[str]], str]) -> str:
    lines = text.split("\n")
    return "\n".join(line if line.startswith("#") else _NAMED.sub(link, line) for line in lines)


def written(page: str) -> str:
    """The page with its head, and the register's sections below."""
    parts = [page.partition("\n## ")[0].rstrip("\n") + "\n"]
    for title, part in SECTIONS.items():
        rows = sorted(code for code in vars(part).values() if isinstance(code, Code))
        lines = "\n".join(f"| `{one}` | {one.kind} | {one.means} | {one.do} |" for one in rows)
        parts.append(f"\n## {title}\n\n| code | kind | means | do |\n|---|---|---|---|\n{lines}\n")
    return "".join(parts)


if __name__ == "__main__":
    _PAGE.write_text(written(_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
