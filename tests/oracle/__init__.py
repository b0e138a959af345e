"""The in-memory oracle: `docs/semantics.md` in plain Python, by a full fold over all that ever arrived.

It is slow and obvious on purpose. It shares the contract with the engines and nothing else.
"""

from tests.oracle.model import (
    Counts,
    DeliveredFile,
    NotModelledError,
    Outcome,
    Quarantined,
    ReplicaRow,
    Run,
    Value,
    Version,
)
from tests.oracle.replay import replay

__all__ = [
    "Counts",
    "DeliveredFile",
    "NotModelledError",
    "Outcome",
    "Quarantined",
    "ReplicaRow",
    "Run",
    "Value",
    "Version",
    "replay",
]
