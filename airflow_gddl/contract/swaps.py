"""Objects that several processes change: a change is put only where no other came between."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow_gddl.contract.errors import RetriableError

T = TypeVar("T")
TRIES = 50


def swapped(path: str, attempt: Callable[[], tuple[T] | None]) -> T:
    """The new content of an object, once an attempt to change it has succeeded.

    Args:
        path: of the object.
        attempt: reads the object, and puts the changed one if it is still the one that was read; None: it was not.

    Raises:
        RetriableError: `STATE_CONTENDED`; what `attempt` raises.
    """
    for _ in range(TRIES):
        if (done := attempt()) is not None:
            return done[0]
    what = f"other writers kept changing it, {TRIES} times"
    raise RetriableError("STATE_CONTENDED", what, where=path, remedy="no data is lost; the next try writes it")
