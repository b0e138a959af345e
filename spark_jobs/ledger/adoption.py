"""The takeover of a replica that another job kept, while it is under way (`gddl adopt`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.ledger.commit_files import read_small
from spark_jobs.plan.baseline import Baseline
from spark_jobs.plan.planned_batch import PlannedFile

_DOCUMENT = "adoption.json"


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """What was decided before the first write: whoever carries it on does the same.

    Attributes:
        asked: what the user asked, and of which row: asked otherwise, it begins anew.
        planned_at: of the batch that it is, see `BatchPlan.planned_at`.
        version: of the replica that was read.
        baseline: what its rows without `_gddl` stand for.
        files: landing files whose changes are in the table.
        columns, types: of the replica, in its order; types as SQL has them.
        sequence_by, sequence_type, sequence_forms, max_sequence: as in `TableState`; None: not known yet.
        rows: of the replica.
    """

    asked: str
    planned_at: str
    version: int
    baseline: Baseline
    files: tuple[PlannedFile, ...]
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: int
    sequence_by: tuple[str, ...] | None = None
    sequence_type: str | None = None
    sequence_forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_sequence: str | None = None


def read_adoption(storage: Storage, state: str) -> Adoption | None:
    """The one under way of the table whose state folder is `state`; None: none.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    return read_small(storage, join(state, _DOCUMENT), Adoption, "delete it, and run `gddl adopt --table T` again")


def write_adoption(storage: Storage, state: str, adoption: Adoption) -> None:
    storage.write(join(state, _DOCUMENT), codec.to_document(adoption).encode())


def end_adoption(storage: Storage, state: str) -> None:
    storage.delete(join(state, _DOCUMENT))


def in_order_of_removal(names: Collection[str]) -> list[str]:
    """Names of a ledger to remove, all but claims: the plan, then commits, older ones first, then what they name.

    No run takes what is left for a new table.
    """
    first = {"plan.json": 0}
    mine = (name for name in names if not name.startswith("claims/"))
    return sorted(mine, key=lambda name: (first.get(name, 1 if name.startswith("commits/") else 2), name))
