"""What to simulate: frozen, standard library only; `check` refuses what can't be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gddl.contract.codes import SIMULATE_INVALID
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.row_checks import table_name_fault

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """What the source database knows of a table.

    Attributes:
        keys: primary key; unique and never null in the input; empty: the source only inserts.
        surrogate: adds a leading `int64` column of this name that numbers the rows from 1.
    """

    keys: tuple[str, ...]
    surrogate: str | None = None


@dataclass(frozen=True, kw_only=True)
class Troubles:
    """What goes wrong. Shares are 0 to 1 and hit at least one candidate when above 0; counts are per table and round.

    Attributes:
        late: share of a round's files that arrive a round later, under their old names.
        repeated: share of the files of this and the last round that come again under a new name, whole or in part.
        out_of_order: rows are shuffled within and across the files of a round.
        ties: updates that share their sequence with a different one of the same key, which comes before them.
        unknown_op: rows for the quarantine: their operation is `X`.
    """

    late: float = 0.0
    repeated: float = 0.0
    out_of_order: bool = False
    ties: int = 0
    unknown_op: int = 0


@dataclass(frozen=True, kw_only=True)
class SimulateSpec:
    """Everything a simulation depends on: equal specs write equal bytes.

    Attributes:
        input: folder of `<table>.csv`, `.csv.gz`, `.parquet` or folders of parquet; or tables already in memory.
        landing: local root, or the `s3://` URL of one; files go to `landing/<schema>/<table>/`.
        tables: table name to its shape; only these are simulated.
        changes: a float is the share of the table's rows that change in a round, an int a count.
        start: time of the full load; round n takes place `n * round_seconds` later.
        files_per_round: change files of a table in a round, at most.
    """

    input: Path | Mapping[str, pa.Table]
    landing: Path | str
    schema: str
    tables: Mapping[str, TableShape]
    rounds: int = 3
    changes: float | int = 0.02
    seed: int = 0
    start: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    round_seconds: int = 3600
    files_per_round: int = 2
    troubles: Troubles = field(default_factory=Troubles)


def check(spec: SimulateSpec) -> None:
    """
    Raises:
        MetadataError: `SIMULATE_INVALID`.
    """
    names = (f"{spec.schema}.{name}" for name in spec.tables)
    refused = {name: fault for name in names if (fault := table_name_fault(name))}
    shares = {"late": spec.troubles.late, "repeated": spec.troubles.repeated}
    for good, what, remedy in (
        (bool(spec.tables), "no tables to simulate", "name at least one in `tables`"),
        (spec.rounds >= 0, f"rounds is {spec.rounds}", "0 or more"),
        (not refused, f"no table can be called {', '.join(map(repr, refused))}", "; ".join(refused.values())),
        *((0 <= share <= 1, f"{name} is {share}", "a share is from 0 to 1") for name, share in shares.items()),
    ):
        if not good:
            raise MetadataError(SIMULATE_INVALID, what, remedy=remedy)
