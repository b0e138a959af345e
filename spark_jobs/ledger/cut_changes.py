"""From which time on the change table is whole: maintenance removes superseded changes before it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.ledger.commit_files import read_small

_NAME = "cut.json"


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Superseded changes applied before `before` may be absent; `at` is the time of the last cut. ISO 8601 UTC."""

    before: str
    at: str


def note_cut(storage: Storage, root: str, before: str, at: str) -> None:
    """Record a `Cut` of the table whose state folder is `root`; a longer retention later does not restore changes."""
    cut = Cut(before=max(before, cut_before(storage, root) or ""), at=at)
    storage.write(join(root, _NAME), codec.to_json(cut).encode())


def cut_before(storage: Storage, root: str) -> str | None:
    """See `Cut.before`; None when nothing was cut.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    cut = last_cut(storage, root)
    return None if cut is None else cut.before


def last_cut(storage: Storage, root: str) -> Cut | None:
    """The last time that changes were removed; None: never. Raises as `cut_before`."""
    return read_small(storage, join(root, _NAME), Cut, "delete it; changes that were cut may then be named as missing")
