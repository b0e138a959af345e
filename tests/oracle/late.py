"""Changes that are ignored as late (semantics, 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Listing

from tests.oracle.fold import Event
from tests.oracle.model import Key, Value, rank


def late_ignored(events: Mapping[Key, Listing[Event]], runs: int) -> tuple[int, ...]:
    """Of each run: net changes of a batch that come before what earlier batches brought of their key.

    Args:
        events: of each key, in the order that decides; none for tables without keys.
    """
    counts = [0] * runs
    for found in events.values():
        for run, phase in sorted({_batch(event, found) for event in found}):
            new = [event for event in found if _batch(event, found) == (run, phase)]
            known = [_rank(event) for event in found if _batch(event, found) < (run, phase)]
            by_truncates = all(event.change.op == "T" for event in new)
            counts[run] += bool(known) and not by_truncates and _is_late(new, known)
    return tuple(counts)


def _is_late(new: Listing[Event], known: Iterable[tuple[Value, ...]]) -> bool:
    net = new[-1]
    return net.op != "R" and not any(event.change.forced for event in new) and max(known) > _rank(net)


def _rank(event: Event) -> tuple[Value, ...]:
    return (event.change.generation, rank(event.sequence))


def _batch(event: Event, found: Listing[Event]) -> tuple[int, int]:
    """The run, and its part: changes of the generation that a reload ends, full load, other changes."""
    newest = max(other.change.generation for other in found if other.change.run == event.change.run)
    if event.change.op == "R":
        return event.change.run, 1
    return event.change.run, 0 if event.change.generation < newest else 2
