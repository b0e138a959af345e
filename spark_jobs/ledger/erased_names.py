"""Names of a table that hashes of its erased keys were made with, where the register doesn't state them.

Earlier releases stated none, and moves left the hashes as they were. A name too many does no harm, one
that is missing lets erased keys in. So both traces of a name count: notes of moves, and records of the erasures.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage, read_if_there
from spark_jobs.ledger.moves import NOTE, read_note


def earlier_names(storage: Storage, register: str, table: str, hashes: Collection[str]) -> tuple[str, ...]:
    """
    Args:
        register: the table's folder of erasures.
        table: its present name.

    Raises:
        FatalError: `LEDGER_DAMAGED`: a note can't be read.
    """
    root, schema, name = register.rstrip("/").rsplit("/", 2)
    state = root.rpartition("/")[0]
    found = dict.fromkeys(_recorded(storage, join(state, "runs", schema, name), hashes))
    moves = tuple(_moves(storage, join(state, "ledger")))
    known = [table, *found]
    for now in known:  # grows: a table may have been moved several times
        known += [old for old, new in moves if new == now and old not in known]
    return tuple(dict.fromkeys(known[1:]))


def _moves(storage: Storage, ledgers: str) -> Iterator[tuple[str, str]]:
    """Old and new name of all moves whose note is there; a name that another table was moved to has none."""
    for found in storage.list(ledgers):
        if found.name.endswith(f"/{NOTE}"):
            note = read_note(storage, found.path.removesuffix(f"/{NOTE}"))
            if note is not None:
                yield note.old, note.new


def _recorded(storage: Storage, runs: str, hashes: Collection[str]) -> Iterator[str]:
    """Names in records of the erasures, loose and archived: `details` keep the name of their time."""
    for found in storage.list(runs):
        if not found.path.endswith((".erase.json", ".jsonl")):
            continue
        data = read_if_there(storage, found.path)
        for line in (data or b"").split(b"\n"):
            if b'"erase"' not in line:
                continue
            details = _details(line)
            if details.get("hash") in hashes and isinstance(details.get("table"), str):
                yield details["table"]


def _details(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)["details"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
