"""A mark next to the ledger that changes were cut, for comparisons with the change table."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage, read_if_there

_NAME = "cut.json"


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Superseded changes applied before `before` may be absent; `at` is the time of the last cut. ISO 8601 UTC."""

    before: str
    at: str


def note_cut(storage: Storage, root: str, cut: Cut) -> None:
    """Record a cut of the table whose state folder is `root`; a longer retention later does not restore changes."""
    before = max(cut.before, cut_before(storage, root) or "")
    storage.write(join(root, _NAME), codec.to_json(Cut(before=before, at=cut.at)).encode())


def cut_before(storage: Storage, root: str) -> str | None:
    """See `Cut.before`; None when nothing was cut."""
    data = read_if_there(storage, join(root, _NAME))
    return None if data is None else codec.from_json(Cut, data.decode()).before
