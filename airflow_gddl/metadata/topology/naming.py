"""Numbers and ids that depend on a text alone."""

from __future__ import annotations

import hashlib
import re

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_ID = 200


def number(text: str, below: int) -> int:
    """A number from 0 to `below` - 1, evenly spread."""
    # Not `hash`: that differs from process to process.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % below


def legal(name: str) -> str:
    """A legal DAG id; a changed or truncated name gets a hash, so that it stays unique."""
    changed = _ILLEGAL.sub("-", name)
    if changed == name and len(changed) <= _LONGEST_ID:
        return changed
    return f"{changed[:_LONGEST_ID]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
