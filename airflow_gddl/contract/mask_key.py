"""The key of `mask: hmac`: from the environment or a file of a secret store, never from metadata or the lake."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path

from airflow_gddl.contract.errors import FatalError

MASK_KEY, MASK_KEY_FILE = "GDDL_MASK_KEY", "GDDL_MASK_KEY_FILE"
_SHORTEST = 16


def mask_key(environ: Mapping[str, str]) -> bytes:
    """
    Raises:
        FatalError: `MASK_KEY_MISSING`.
    """
    text, path = environ.get(MASK_KEY, ""), environ.get(MASK_KEY_FILE, "")
    what = f"neither {MASK_KEY} nor {MASK_KEY_FILE} is set"
    if not text and path:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            text, what = "", f"{MASK_KEY_FILE} can't be read ({type(error).__name__})"
    key = text.strip().encode()
    if len(key) < _SHORTEST:
        what = f"the key has fewer than {_SHORTEST} bytes" if key else what
        remedy = "set GDDL_MASK_KEY to a random text, e.g. of `openssl rand -hex 32`, where jobs run"
        raise FatalError("MASK_KEY_MISSING", f"a column has mask: hmac, and {what}", remedy=remedy)
    return key


def key_id(environ: Mapping[str, str]) -> str:
    """Tells keys apart and reveals nothing of a random one; empty: there is none."""
    try:
        return digest(mask_key(environ), b"gddl mask key")[:16]
    except FatalError:
        return ""


def digest(key: bytes, value: bytes) -> str:
    """What the column holds instead of the value: HMAC-SHA-256, hexadecimal."""
    return hmac.digest(key, value, "sha256").hex()
