"""The size of this project as one number, which may not rise unseen: see docs/decisions/size.md.

    python -m devtools.purse [FOLDER]

Counted are tokens of Python as the interpreter reads them, without comments and docstrings, and of a text each word
beyond the third, so that code can't move into texts. Tests count half, and so do words of docs/. A code counts 50, a
field, option or command 200, whatever its length: each has to be understood.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path("docs", "decisions", "size.md")
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_HELD = re.compile(r"^\*\*([\d,]+)\*\*", re.MULTILINE)
_NAMED = re.compile(r"^\| `[^`]+`", re.MULTILINE)
_CODE, _OPTION = 50, 200
_OPTIONS = ("docs/metadata.md", "docs/airflow.md", "docs/cli.md")
"""Pages whose tables have a row for each field, option and command, as tests say."""


def tokens(source: str) -> int:
    """Tokens of a Python module."""
    docstrings = {
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    count = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _LAYOUT or (token.type == tokenize.STRING and token.start[0] in docstrings):
            continue
        count += 1
        if token.type == tokenize.STRING:
            count += max(0, len(token.string.split()) - 3)
    return count


def parts(root: Path) -> dict[str, int]:
    """What each part adds to the sum."""
    found = {"code": 0, "tests": 0, "docs": 0}
    for name, text in _files(root):
        if name.endswith(".py"):
            found["tests" if name.startswith("tests/") else "code"] += tokens(text)
        elif name.startswith("docs/"):
            found["docs"] += len(text.split())
    named = {
        page: len(_NAMED.findall((root / page).read_text(encoding="utf-8"))) for page in (*_OPTIONS, "docs/codes.md")
    }
    return {
        "code": found["code"],
        "tests, half": found["tests"] // 2,
        "words of docs, half": found["docs"] // 2,
        "codes": _CODE * named.pop("docs/codes.md"),
        "fields, options, commands": _OPTION * sum(named.values()),
    }


def _files(root: Path) -> Iterator[tuple[str, str]]:
    command = ("git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files")
    listed = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - git
    for name in listed.stdout.splitlines():
        path = root / name
        if name.endswith((".py", ".md")) and path.is_file():
            yield name, path.read_text(encoding="utf-8")


def held(root: Path) -> int:
    """The sum that the page allows."""
    found = _HELD.search((root / PAGE).read_text(encoding="utf-8"))
    return 0 if found is None else int(found[1].replace(",", ""))


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    counted = parts(root)
    for part, number in (counted | {"sum": sum(counted.values()), "allowed": held(root)}).items():
        sys.stdout.write(f"{part:26}{number:>12,}\n")


if __name__ == "__main__":
    main()
