"""Existing landing folders with similar names, for a table whose folder is missing."""

from __future__ import annotations

import difflib

from airflow_gddl.contract.layout import landing_root
from airflow_gddl.stores import Storage

_SHOWN = 3
_NEAR = 0.8


def folders_like(storage: Storage, landing: str) -> tuple[str, ...]:
    """Landing folders (`schema/table`) with names like this one's, three at most; else the first ones of its schema.

    Where the schema has no folder, schemas (`schema`) instead. One or two listings of folders alone.

    Args:
        landing: the folder that is missing, `root/schema/table`.
    """
    root = landing_root(landing)
    wanted = landing.rstrip("/").removeprefix(f"{root}/")
    schema, _, name = wanted.partition("/")
    if there := storage.folders(f"{root}/{schema}"):
        return tuple(f"{schema}/{one}" for one in _like(name, there))
    return _like(schema, storage.folders(root))


def _like(name: str, there: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(name, there, n=_SHOWN, cutoff=_NEAR) or there[:_SHOWN])
