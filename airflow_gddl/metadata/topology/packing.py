"""Which tables share a pack: an extendible-hash trie over the tables' names.

A leaf is split by the next bit of the hash only when it outgrows the limit, so a new row moves the tables of one leaf
at most, and no other leaf changes its name. The answer depends on the set of names alone, not on order or history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

BITS = 256


def pack(names: Iterable[str], limit: int) -> dict[str, tuple[str, ...]]:
    """Leaves by their path of bits (`""`: all fit in one), each with its sorted names, at most `limit` of them.

    Args:
        names: each once.
        limit: from 1 up.
    """
    leaves: dict[str, tuple[str, ...]] = {}
    open_: list[tuple[str, list[str]]] = [("", sorted(names))]
    while open_:
        path, members = open_.pop()
        if len(members) <= limit or len(path) == BITS:
            leaves[path] = tuple(members)
            continue
        for bit in "01":
            half = [name for name in members if _bit(name, len(path)) == bit]
            if half:
                open_.append((path + bit, half))
    return dict(sorted(leaves.items()))


def number(text: str, below: int) -> int:
    """A number from 0 to `below` - 1 that depends on the text alone, evenly spread."""
    return int.from_bytes(_digest(text)[:8], "big") % below


def _bit(name: str, place: int) -> str:
    byte = _digest(name)[place // 8]
    return "1" if byte >> (7 - place % 8) & 1 else "0"


def _digest(text: str) -> bytes:
    # Not `hash`: that differs from process to process.
    return hashlib.sha256(text.encode()).digest()
