"""What is known of a batch once its rows are decoded, whatever engine holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_jobs.dialects.probed import Unreadable
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.figures import Figures


@dataclass(frozen=True, kw_only=True)
class Landed:
    """Files that look alike, as `batch_schema` reads them."""

    kind: str
    columns: tuple[tuple[str, str], ...]
    label: str
    only_deletes: bool


@dataclass(frozen=True, kw_only=True)
class DecodedBatch:
    """Attributes:
    unreadable: files that go to the quarantine whole.
    schema_ids: of the groups, in their order; `change_schemas` of those with changes.
    schema_of: ledger path to schema id.
    rows_by_footer: rows that the files' footers promise, less `erased`; null where a file has no footer.
    erased: rows of erased keys, which were passed over.
    """

    schema: BatchSchema
    figures: Figures
    schema_ids: tuple[int, ...]
    change_schemas: frozenset[int]
    unreadable: tuple[Unreadable, ...] = ()
    schema_of: Mapping[str, int] = field(default_factory=dict)
    rows_by_footer: int | None = None
    erased: int = 0
