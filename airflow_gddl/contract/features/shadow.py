"""`shadow`: a share of the batches is compared with Spark's `MERGE` before its commit (docs/trust.md, Shadow).

Here are also the differences that were found, as the lake keeps them until a person decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.endings import Ending
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.contract.features import FeatureDescriptor
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.shares import is_share, share_remedy
from airflow_gddl.contract.spec import TableSpec, TierSpec

HELD_CODE = "SHADOW_HELD"
FOUND, DECIDED = "found.json", "decided.json"
"""Names of the documents of a difference, in its folder."""


@dataclass(frozen=True, kw_only=True)
class DifferentKey:
    """A key whose rows differ.

    Attributes:
        key: a JSON object.
        ours, spark: the row on each side, as JSON, masked columns without their values; None: that side has none.
        columns: that differ; empty where one side has no row, or several.
    """

    key: str
    ours: str | None = None
    spark: str | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShadowDifference:
    """What a comparison of a batch has found before its commit.

    Attributes:
        kind: `replica`, `history`, `tombstones` or `changes`: the table whose commit was stopped.
        version: of that table, before the commit.
        found_at: ISO 8601 UTC.
        sorts: sort of difference to how often it was found.
        notes: differences that are none of a key.
        keys: some of the keys whose rows differ.
        sides: folders of the two sides, Delta tables, by `ours` and `spark`.
    """

    table: str
    batch_id: str
    kind: str
    version: int
    found_at: str
    sorts: Mapping[str, int]
    notes: tuple[str, ...] = ()
    keys: tuple[DifferentKey, ...] = ()
    sides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ShadowDecision:
    """That a person has looked at a difference, and lets our commits go on.

    Attributes:
        decided_at: ISO 8601 UTC.
    """

    decided_at: str
    decided_by: str
    reason: str


def shadow_folder(lake: str, spec: TableSpec) -> str:
    """Folder of the table's differences, each in a folder of its own."""
    return join(lake, STATE, "shadow", spec.schema_name, spec.name)


def places_of(paths: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Folders of differences, the oldest batch first, and whether a person has decided.

    Args:
        paths: of all objects below a `shadow_folder`.
    """
    there = frozenset(paths)
    for found in sorted(path for path in there if path.endswith(f"/{FOUND}")):
        folder = found.rpartition("/")[0]
        yield folder, join(folder, DECIDED) in there


def share_of(spec: TableSpec, tier: TierSpec) -> float:
    """The share of batches to compare, 0 to 1."""
    return float(tier.shadow if spec.shadow is None else spec.shadow)


def is_used(spec: TableSpec, tier: TierSpec) -> bool:
    return bool(share_of(spec, tier))


def problems(spec: TableSpec | TierSpec) -> Iterator[SpecProblem]:
    """None: of a row that does not say."""
    if spec.shadow is not None and not is_share(spec.shadow):
        message, remedy = "not a fraction", "write true, or a number from 0 to 1, e.g. 0.01"
        yield SpecProblem("FIELD_VALUE", ("shadow",), spec.shadow, message, remedy)


def remedy_of(value: object) -> str:
    return f"{share_remedy(value)}; or true"


FEATURE = FeatureDescriptor(
    is_used=is_used,
    check_values=problems,
    check_tier=problems,
    remedies={"shadow": remedy_of},
    endings={HELD_CODE: Ending(("run",), "a run says it until the difference is released")},
)
