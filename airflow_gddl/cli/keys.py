"""`--key`: one key of a table, from arguments, files and standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_gddl.contract.errors import MetadataError


def read_key(given: list[str], code: str, *, alone: bool = False) -> dict[str, str]:
    """`["a=1", "@FILE"]` as `{"a": "1", ...}`, with one part for each line of a file; `@-` is standard input.

    Args:
        code: of the error; its message shows no value, which may be personal.
        alone: take a value without its column, under an empty name, where it is the whole key.

    Raises:
        MetadataError: a file can't be read, or a part is not COLUMN=VALUE.
    """
    parts = []
    for part in given:
        parts += _lines(part.removeprefix("@"), code) if part.startswith("@") else [part]
    if alone and len(parts) == 1 and parts[0] and "=" not in parts[0]:
        return {"": parts[0]}
    return _key_of(parts, code)


def _lines(file: str, code: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        what = f"the file of the key can't be read: {reason}"
        raise MetadataError(code, what, remedy="name a text file in UTF-8, or @-") from error
    return [line for line in text.removeprefix("\ufeff").split("\n") if line.strip()]


def _key_of(parts: list[str], code: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or not name or name in found:
            what = f"the key's part number {len(found) + 1} is not COLUMN=VALUE, or names its column again"
            raise MetadataError(code, what, remedy="write e.g. --key region=EU --key id=5")
        found[name] = value
    return found
