"""YAML of proposed rows: values in flow style, and comments. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_gddl.metadata import files

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.$-]*")
# Text to us, but not to every reader of YAML 1.1.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def flow(value: Any) -> str:
    """A scalar, list or mapping in flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(name)}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return text(value) if isinstance(value, str) else str(value)


def text(value: str) -> str:
    """Text, plain where every reader takes it for that, else quoted."""
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS and files.scalar(value) == value:
        return value
    if value.isprintable() and value.isascii() and "'" not in value:
        return f"'{value}'"
    return '"' + "".join(_escaped(character) for character in value) + '"'


def comment(words: str) -> str:
    """Text of a comment: one line, without characters that YAML refuses."""
    return "".join(character if character.isprintable() else " " for character in words)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
