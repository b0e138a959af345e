"""A round's changes spread over files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_gddl.devtools.simulate.changes import SimulatedChange
from airflow_gddl.devtools.simulate.clock import SimulatedClock
from airflow_gddl.devtools.simulate.columns import SimulatedColumn, SimulatedColumns
from airflow_gddl.devtools.simulate.encode import Encoder
from airflow_gddl.devtools.simulate.files import Namer, to_bytes
from airflow_gddl.devtools.simulate.spec import Delivery


@dataclass(frozen=True)
class Packet:
    """A change file before it is written.

    Attributes:
        name: below the table's folder.
        columns: as of the round it was made in.
        unfit: column that holds text which fits no other type; null: none.
    """

    name: str
    rows: tuple[SimulatedChange, ...]
    columns: SimulatedColumns
    unfit: SimulatedColumn | None = None

    @property
    def bad(self) -> int:
        return sum(row.bad is not None for row in self.rows)

    def data(self, delivery: Delivery) -> bytes:
        return to_bytes(Encoder(delivery, self.columns, self.unfit).changes(self.rows), delivery)

    def again(self, name: str, rng: random.Random) -> Packet:
        """The file under another name; half of the time with only some of its rows."""
        rows = self.rows
        if rng.random() < 0.5:
            picked = sorted(rng.sample(range(len(rows)), max(1, len(rows) // 2)))
            rows = tuple(rows[i] for i in picked)
        return replace(self, name=name, rows=rows)


@dataclass(frozen=True)
class Packer:
    """Packs for one table; named times never go back."""

    namer: Namer
    times: SimulatedClock
    files: int
    shuffled: bool

    def pack(
        self, changes: list[SimulatedChange], bad: list[SimulatedChange], columns: SimulatedColumns, rng: random.Random
    ) -> list[Packet]:
        """At most `files` packets, each with at least one row, named by the last commit in its share."""
        if not changes and not bad:
            return []
        size = max(1, -(-len(changes) // self.files))
        ordered = [changes[i : i + size] for i in range(0, len(changes), size)] or [[]]
        names = [self.namer.change(self.times.after((share or bad)[-1].commit)) for share in ordered]
        mixed = self._mixed(ordered, rng)
        for row in bad:
            share = rng.choice(mixed)
            share.insert(rng.randint(0, len(share)), row)
        return [Packet(name, _flat(share), columns) for name, share in zip(names, mixed, strict=True)]

    def _mixed(self, shares: list[list[SimulatedChange]], rng: random.Random) -> list[list[SimulatedChange]]:
        if not self.shuffled:
            return [list(share) for share in shares]
        rows = [row for share in shares for row in share]
        rng.shuffle(rows)
        taken = iter(rows)
        return [[next(taken) for _ in share] for share in shares]


def _flat(share: Sequence[SimulatedChange]) -> tuple[SimulatedChange, ...]:
    """Rivals before their winners: the later row of a file wins."""
    return tuple(row for change in share for row in (change.rival, change) if row is not None)
