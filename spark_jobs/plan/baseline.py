"""What rows without `_gddl` stand for, in a replica that had rows before its first batch (docs/semantics.md)."""

from __future__ import annotations

from dataclasses import dataclass

BASELINE = "gddl.baseline"
"""Property of a replica: the JSON of its `Baseline`; empty or absent: every row has `_gddl`."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """`_gddl` of the rows that a replica had before its first batch, and that their files lack.

    They are in the change table, too, as rows of a batch: with a sequence as inserts, without one as rows of the full
    load, before which no change comes.

    Attributes:
        batch_id, applied_at: of that batch; `applied_at` is ISO 8601 UTC.
        source_file: what stands for a landing file.
        sequence: columns of the replica that hold the sequence of each row's last change; empty: none is known.
        ordered_text: those of them whose text is kept in its normal form, see `TableSchema.ordered_text`.
        generation, schema: see `TableSchema.gddl_fields`.
    """

    batch_id: str
    applied_at: str
    source_file: str
    sequence: tuple[str, ...] = ()
    ordered_text: tuple[str, ...] = ()
    generation: int = 1
    schema: int = 0
