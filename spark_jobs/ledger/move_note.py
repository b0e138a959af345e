"""A note in a ledger's folder that its table has another name since."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.ledger.commit_files import (
    read_small,
)

NOTE = "move.json"


@dataclass(frozen=True, kw_only=True)
class MoveNote:
    """From one target to another, both `schema.name`; `at`: ISO 8601 UTC."""

    old: str
    new: str
    at: str


def read_note(storage: Storage, state: str) -> MoveNote | None:
    """The note in a ledger's folder.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    remedy = 'rewrite it with the old and new name of the table: {"old": ..., "new": ..., "at": ...}'
    return read_small(storage, join(state, NOTE), MoveNote, remedy)


def write_note(storage: Storage, state: str, note: MoveNote) -> None:
    storage.write(join(state, NOTE), codec.to_json(note).encode())


def _folder(table: str) -> str:
    return f"/{table.replace('.', '/', 1)}"


def require_not_moved(storage: Storage, state: str, names: Collection[str]) -> None:
    """
    Args:
        state: a ledger's folder.
        names: what is in it.

    Raises:
        FatalError: `TABLE_MOVED`.
    """
    note = read_note(storage, state) if NOTE in names else None
    if note is None:
        return
    new = f"{state.removesuffix(_folder(note.old)).removesuffix(_folder(note.new))}{_folder(note.new)}"
    if read_note(storage, new) is not None:
        remedy = f"finish it with `gddl move --table {note.old} --to {note.new}`"
        raise FatalError("TABLE_MOVED", f"the move of {note.old} to {note.new} is not finished", remedy=remedy)
    back = f"`gddl move --table {note.new} --to {note.old}`"
    remedy = (
        f"set the metadata row's target to {note.new}, or move it back with {back}; for another table of this name, "
    )
    remedy += f"delete {join(state, NOTE)}"
    raise FatalError("TABLE_MOVED", f"{note.old} is {note.new} since {note.at}", remedy=remedy)
