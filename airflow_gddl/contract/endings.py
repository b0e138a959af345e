"""How a code of the state `attention` ends: which actions may end it, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.basics import CLEARING, LOADS

COMMITS = LOADS
"""Commit batches."""
COUNTS = (*LOADS, *CLEARING)
"""Count what they leave in the quarantine."""


@dataclass(frozen=True)
class Ending:
    """How a code ends.

    Attributes:
        actions: by which it may; a `run` that had something to do.
        why: the reason, for people.
        by_count: only where nothing is left in quarantine, or all that is left was refused by this very action.
        judged: not by warnings: the action's own result says whether the problem is left.
    """

    actions: tuple[str, ...]
    why: str
    by_count: bool = False
    judged: bool = False


@dataclass(frozen=True, kw_only=True)
class OwnCodes:
    """Codes of a room that the state of a table is judged by.

    Attributes:
        endings: its codes of the state `attention`, and how each ends.
        when_idle: those of its codes for which an idle run still writes a record.
    """

    endings: Mapping[str, Ending] = field(default_factory=dict)
    when_idle: frozenset[str] = frozenset()
