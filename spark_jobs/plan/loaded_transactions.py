"""Which transactions of PostgreSQL a load has read: what they have changed is in the load, and comes in the log again.

Without a key a row of the load and the same row in the log are two rows, unless it is known that they are one.
"""

from __future__ import annotations

from dataclasses import dataclass

_HALF, _EVERY = 1 << 31, 1 << 32


@dataclass(frozen=True, kw_only=True)
class LoadedTransactions:
    """The transactions that the snapshot of a load has seen.

    A place in the log does not tell: a transaction that was open at that place, or has written its commit there and was
    not yet visible, has changes before it.

    Attributes:
        snapshot: `pg_current_snapshot()`, `xmin:xmax:xip,xip`.
        upto: place in the log, read after the snapshot: all that it has seen was committed before.
        log: number of the log that jobs read, see `LogPosition.number`; 0 too where others read it.
    """

    snapshot: str
    upto: int
    log: int = 0

    def has(self, transaction: int, place: int, log: int) -> bool:
        """Whether the load has read a change.

        Args:
            transaction: the lower 32 bits of its number, as the log has it.
            place: of the change in the log.
            log: number of that log.
        """
        if log != self.log:
            return log < self.log
        if place > self.upto:  # numbers of 32 bits come again
            return False
        first, end, still_open = self.snapshot.split(":")
        distance = (transaction - int(first) + _HALF) % _EVERY - _HALF
        number = int(first) + distance
        return number < int(end) and str(number) not in still_open.split(",")
