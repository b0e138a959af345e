"""Words of messages that say a row of metadata: each has the word *metadata*, as a table has rows, too."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

_ITS = (
    r"is (?:invalid|disabled|not changed)|loads|changed|has (?:no keys|published)|gives|in \{|to the|"
    r"is not enabled"
)
_THE = (
    r"names|named|says|gives|has `|has another|masks|hashes|now|no |does not|was|selects|by \[|is not enabled|"
    r"of \{[^}]*\} (?:is|has)"
)
_NO = r"has the (?:table|target)|has this|of this file|names"
_OF_FIELDS = r"(?:keys|expectations|priority`|where`|expect`|shards`|another column)"
METADATA_ROW = re.compile(
    r"(?<!runs )(?<!three )\b(?:in|into|out of) (?:the|a) (?=row\b(?!'))"
    r"|\b(?:the|its) (?=row's (?:source|target|options|keys)\b)|\binstead of the (?=row's)"
    rf"|\b[Ii]ts (?=row (?:{_ITS}))|\b[Tt]he (?=row (?:{_THE}))|\b[Nn]o (?=row (?:{_NO}))"
    r"|\badd (?:a|its) (?=row\b)|\banother (?=row has its name)|\bsome (?=row has)|\bfit the (?=row\b)"
    r"|\b(?:keep|fix|restore) the (?=row\b)|\b[Cc]orrect (?:the|that) (?=row\b)|\bthan the (?=row now)"
    r"|\bhas no (?=row[;,])|\btables? (?:of .{0,20})?(?:that were added )?without a (?=row\b)"
    rf"|{_OF_FIELDS} of the (?=row\b)|\bscheduled as the (?=row\b)"
)
"""Each match ends where *metadata* has to stand."""


def strings_of(path: Path) -> Iterator[tokenize.TokenInfo]:
    """String literals of a module that are no docstrings."""
    last = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.STRING and last not in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}:
            yield token
        if token.type not in {tokenize.NL, tokenize.COMMENT}:
            last = token.type
