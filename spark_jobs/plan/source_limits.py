"""Limits of what jobs read from sources themselves, passed in with the runtime; tests pass smaller ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SourceLimits:
    """How much a job reads from a source at once, and how long it waits for one.

    Attributes:
        decoded_bytes: size of a snapshot and its neighbours in memory, decoded. Larger ones are compared in parts, by
            hashes of keys.
        rows_a_file: rows in a change file that a job makes of a snapshot.
        messages_a_file, bytes_a_file: a file of a topic ends with the message that reaches one of them.
        answer_seconds: how long a Kafka broker may take to answer.
        open_seconds: how long opening a database's log waits for transactions that write.
    """

    decoded_bytes: int = 1 << 30
    rows_a_file: int = 1_000_000
    messages_a_file: int = 20_000
    bytes_a_file: int = 24 * 1024**2
    answer_seconds: float = 15.0
    open_seconds: int = 240
