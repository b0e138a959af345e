"""Tables without a row, as the lake keeps them: proposals, and notes of what awaits a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.errors import Note
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.stores import open_store
from airflow_gddl.stores.storage import read_document


@dataclass(frozen=True, kw_only=True)
class StoredProposals:
    """The object of a metadata folder.

    Attributes:
        state: of `onboarding.new_tables`, which writes it; nothing else reads it.
    """

    notes: tuple[Note, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)


def place_of(lake: str, prefix: str) -> str:
    """Path for metadata folders with this prefix of DAG ids."""
    return join(lake, STATE, "airflow", "new-tables", f"{prefix or 'default'}.json")


def notes_of(path: str, environ: Mapping[str, str]) -> tuple[Note, ...]:
    """What awaits a person.

    Args:
        path: empty: no source asks for proposals, and nothing is read.

    Raises:
        GddlError: the store does not answer; see `Storage`.
    """
    stored = read_document(open_store(environ), path, StoredProposals) if path else None
    return () if stored is None else stored.notes
