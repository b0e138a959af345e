"""The simulated source database of the demos: changes in rounds, with delivery problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from airflow_gddl.devtools.simulate import DEMO_SHAPES, SimulateSpec, Simulator, Troubles, demo_spec, prepare
from airflow_gddl.devtools.simulate.clock import recent_start

_ROUND_SECONDS = 60
_LEAST_ROWS = 50
_TROUBLES = Troubles(late=0.4, repeated=0.3, out_of_order=True, ties=1, unknown_op=1)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What to simulate. `scale`: share of each table's rows, above 0 to 1; `rounds`: after the full load."""

    landing: Path
    scale: float
    rounds: int
    seed: int
    now: datetime


class DemoSource:
    """Slow to create: reads all tables.

    Raises:
        MetadataError: `SIMULATE_DEMO_MISSING` and others of the simulator.
    """

    def __init__(self, source: SourceOptions) -> None:
        self.source = source
        self.simulator: Simulator = prepare(_spec(source))

    def land(self, number: int) -> str:
        """Land the full load (0) or a round of changes; return a description."""
        files = self.simulator.land(number)
        round_ = f"round {number} of {self.source.rounds}, files late, repeated and out of order"
        return f"{round_ if number else 'full load'}: {len(files)} files landed"

    @property
    def tables(self) -> tuple[str, ...]:
        """`schema.name` of each."""
        return tuple(f"nyc.{name}" for name in DEMO_SHAPES)

    def truth(self, table: str) -> pa.Table:
        """Expected content of the replica of `schema.name` after all rounds."""
        return self.simulator.truth(table.split(".", 1)[1])


def _spec(source: SourceOptions) -> SimulateSpec:
    spec = demo_spec(source.landing, rounds=source.rounds, seed=source.seed)
    start = recent_start(source.now, _ROUND_SECONDS, source.rounds)
    given = {} if isinstance(spec.input, Path) else spec.input
    tables = {
        name: table.slice(0, max(_LEAST_ROWS, round(table.num_rows * source.scale))) for name, table in given.items()
    }
    return replace(spec, input=tables, troubles=_TROUBLES, start=start, round_seconds=_ROUND_SECONDS)
