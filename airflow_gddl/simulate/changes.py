"""What happens in the source during a round: transactions of changes, applied to the table as they are made."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_gddl.simulate.source import Row, SimulatedSourceTable
from airflow_gddl.simulate.spec import SimulateSpec
from airflow_gddl.simulate.values import Key, KeyMaker, Values

_MILLISECOND = timedelta(milliseconds=1)
COMMITTING = 0.9
"""Share of a round in which transactions commit; the rest is for files written after them."""


def in_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def recent_start(now: datetime, seconds: int, rounds: int) -> datetime:
    """The start of a simulation whose last commit is just before `now`, so that a table's lag is that of its run."""
    return in_milliseconds(now - timedelta(seconds=seconds) * (rounds + COMMITTING))


@dataclass
class Sequencer:
    """One counter for the whole task, as `AR_H_CHANGE_SEQ` has."""

    counter: int = 0

    def next(self, moment: datetime) -> str:
        """35 digits: the time to the hundredth of a second, then the counter; sorts as text."""
        self.counter += 1
        return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 10_000:02d}{self.counter:019d}"


@dataclass(frozen=True)
class RoundTime:
    """When round `number` takes place; 0 is the full load."""

    start: datetime
    seconds: int
    number: int

    @property
    def begin(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds * self.number)

    def commit(self, index: int, count: int) -> datetime:
        """Commit time of transaction `index` of `count`: evenly over the first part, `COMMITTING`, of the round."""
        return self.begin + timedelta(seconds=self.seconds) * COMMITTING * (index + 1) / (count + 1)


@dataclass
class SimulatedClock:
    """Times in the names of one table's change files: milliseconds, each later than the one before."""

    last: datetime | None = None

    def after(self, moment: datetime) -> datetime:
        wanted = in_milliseconds(moment) + _MILLISECOND
        self.last = wanted if self.last is None else max(wanted, self.last + _MILLISECOND)
        return self.last


_REUSE_SHARE = 0.3
_MOST_COLUMNS = 3
_MOST_CHANGES = 4
"""Of a transaction, which share a commit time."""


@dataclass(frozen=True)
class SimulatedChange:
    """One row of a change file.

    Attributes:
        op: `I`, `U`, `D`, or what a bad row has.
        sequence: null or text without a meaning only in a bad row.
        row: column (its first name) to value; missing ones are null.
        before: the row before an update; null for other operations.
        full: the whole row before a delete or after anything else, whatever `row` carries.
        carried: columns that an update carries; null: all.
        bad: the trouble that a row for the quarantine stands for; null: a good row.
        rival: an earlier row with the same sequence and other content, delivered just beside this one.
        moved: the update changes the key.
    """

    op: str
    sequence: str | None
    commit: datetime
    row: Row
    before: Row | None = None
    full: Row | None = None
    carried: tuple[str, ...] | None = None
    bad: str | None = None
    rival: SimulatedChange | None = None
    moved: bool = False


@dataclass(frozen=True)
class Maker:
    """Makes the changes of one table."""

    spec: SimulateSpec
    state: SimulatedSourceTable
    values: Values
    keys: KeyMaker | None
    sequencer: Sequencer

    def changes(self, count: int, time: RoundTime, rng: random.Random) -> list[SimulatedChange]:
        """`count` changes (fewer when nothing can change), in order, already applied to the table."""
        sizes = list(_transactions(count, rng))
        made = []
        for index, size in enumerate(sizes):
            commit = time.commit(index, len(sizes))
            made += [change for _ in range(size) if (change := self._one(commit, rng)) is not None]
        return made

    def altered_row(self, rng: random.Random) -> Row | None:
        """An existing row with one changed value, which makes a wrong application visible."""
        row_id = self.state.pick(rng)
        row = None if row_id is None else self.state.row(row_id)
        return None if row is None else self.altered(row, rng)

    def altered(self, row: Row, rng: random.Random, among: tuple[str, ...] | None = None) -> Row | None:
        """The row with another value in one column that is not of the key; null when there is none.

        Args:
            among: the columns to choose from; null: any.
        """
        free = [column for column in self.state.columns.free if among is None or column.name in among]
        if not free:
            return None
        column = rng.choice(free)
        return {**row, column.name: self.values.other(column, row.get(column.name), rng)}

    def _one(self, commit: datetime, rng: random.Random) -> SimulatedChange | None:
        mix = self.spec.mix
        op = rng.choices(("U", "I", "D"), (mix.update, mix.insert, mix.delete))[0]
        row_id = self.state.pick(rng) if self.keys is not None and op != "I" else None
        row = None if row_id is None else self.state.row(row_id)
        if row_id is None or row is None:
            return self._insert(commit, rng)
        return self._delete(row_id, row, commit) if op == "D" else self._update(row_id, row, commit, rng)

    def _insert(self, commit: datetime, rng: random.Random) -> SimulatedChange | None:
        state = self.state
        row = {column.name: self.values.draw(column, rng) for column in state.columns.free}
        if self.keys is not None:
            key = self._reused_key(rng) or self._fresh_key(rng) or self._reused_key(rng, always=True)
            if key is None:
                return None
            row |= dict(zip(state.columns.keys, key, strict=True))
        state.insert(row)
        return SimulatedChange("I", self.sequencer.next(commit), commit, dict(row), full=row)

    def _update(self, row_id: int, old: Row, commit: datetime, rng: random.Random) -> SimulatedChange:
        key = self._fresh_key(rng) if rng.random() < self.spec.troubles.key_updates else None
        if key is not None:
            return self._move(row_id, old, key, commit)
        free = self.values.varying(self.state.columns.free)
        chosen = rng.sample(free, min(len(free), rng.randint(1, _MOST_COLUMNS)))
        new = {**old, **{column.name: self.values.other(column, old.get(column.name), rng) for column in chosen}}
        self.state.update(row_id, new)
        carried = tuple(column.name for column in chosen) if chosen and self.spec.delivery.columns_to_update else None
        brought = new if carried is None else {name: new[name] for name in (*self.state.columns.keys, *carried)}
        return SimulatedChange("U", self.sequencer.next(commit), commit, brought, before=old, full=new, carried=carried)

    def _move(self, row_id: int, old: Row, key: Key, commit: datetime) -> SimulatedChange:
        # The row is new to a replica, which can't know what columns held that files no longer bring.
        dropped = self.state.columns.dropped()
        kept = {name: value for name, value in old.items() if name not in dropped}
        new = kept | dict(zip(self.state.columns.keys, key, strict=True))
        self.state.move(row_id, new, leaves_phantom=self.spec.delivery.before_images is None)
        return SimulatedChange("U", self.sequencer.next(commit), commit, new, before=old, full=new, moved=True)

    def _delete(self, row_id: int, old: Row, commit: datetime) -> SimulatedChange:
        self.state.delete(row_id)
        bare = self.spec.delivery.deletes_carry_only_keys
        brought = {name: old[name] for name in self.state.columns.keys} if bare else old
        return SimulatedChange("D", self.sequencer.next(commit), commit, brought, full=old)

    def _fresh_key(self, rng: random.Random) -> Key | None:
        row_id = self.state.pick(rng)
        row = None if row_id is None else self.state.row(row_id)
        like = self.state.key(row) if row is not None else next(iter(self.state.freed), None)
        return self.keys.fresh(like, rng) if self.keys is not None else None

    def _reused_key(self, rng: random.Random, *, always: bool = False) -> Key | None:
        freed = self.state.freed
        if not freed or not (always or rng.random() < _REUSE_SHARE):
            return None
        return freed.pop(rng.randrange(len(freed)))


def _transactions(count: int, rng: random.Random) -> Iterator[int]:
    while count > 0:
        size = min(count, rng.randint(1, _MOST_CHANGES))
        yield size
        count -= size


def with_ties(maker: Maker, changes: list[SimulatedChange], count: int, rng: random.Random) -> list[SimulatedChange]:
    """`count` of the changes (fewer if fewer can) with a rival that loses to them, for it comes before."""
    fit = [i for i, c in enumerate(changes) if c.op == "D" or (c.op == "U" and not c.moved)]
    rivals = {}
    for i in rng.sample(fit, min(count, len(fit))):
        rival = _rival(maker, changes[i], rng)
        if rival is not None:
            rivals[i] = rival
    return [replace(c, rival=rivals[i]) if i in rivals else c for i, c in enumerate(changes)]


def _rival(maker: Maker, change: SimulatedChange, rng: random.Random) -> SimulatedChange | None:
    # It touches what its winner overwrites, so that a partial update leaves nothing of it.
    row = maker.altered(change.full or {}, rng, change.carried)
    if row is None:
        return None
    brought = row if change.carried is None else {name: row[name] for name in change.row}
    return replace(change, op="U", row=brought, before=change.before or change.full)


def bad_changes(maker: Maker, time: RoundTime, rng: random.Random) -> list[SimulatedChange]:
    """Rows for the quarantine, as many of each kind as the spec asks for and the table allows."""
    troubles = maker.spec.troubles
    wanted = (
        ("unknown_op", troubles.unknown_op),
        ("null_key", troubles.null_key if maker.keys is not None else 0),
        ("null_sequence", troubles.null_sequence),
        ("unparsable_sequence", troubles.unparsable_sequence),
    )
    return [
        bad for kind, count in wanted for _ in range(count) if (bad := bad_change(maker, kind, time, rng)) is not None
    ]


def bad_change(maker: Maker, kind: str, time: RoundTime, rng: random.Random) -> SimulatedChange | None:
    """One row for the quarantine; null when the table is empty or holds nothing but its key."""
    row = maker.altered_row(rng)
    if row is None:
        return None
    commit = time.commit(1, 1)
    op = "U" if maker.keys is not None else "I"
    change = SimulatedChange(op, maker.sequencer.next(commit), commit, row, before=row if op == "U" else None, bad=kind)
    if kind == "unknown_op":
        return replace(change, op="X")
    if kind == "null_key":
        return replace(change, row={**row, rng.choice(maker.state.columns.keys): None})
    if kind == "null_sequence":
        return replace(change, sequence=None)
    return replace(change, sequence="not-a-sequence") if kind == "unparsable_sequence" else change
