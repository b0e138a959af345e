"""A batch after its rows are decoded, for all engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.figures import Figures


@dataclass(frozen=True, kw_only=True)
class DecodedBatch:
    """Attributes:
    change_schemas: schema ids of the groups with changes.
    schema_of: ledger path to schema id.
    rows_by_footer: rows that the files' footers promise, less `erased`; null where a file has no footer.
    erased: rows of erased keys, which were excluded.
    """

    schema: BatchSchema
    figures: Figures
    change_schemas: frozenset[int]
    schema_of: Mapping[str, int] = field(default_factory=dict)
    rows_by_footer: int | None = None
    erased: int = 0
