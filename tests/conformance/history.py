"""The life of a source table: transactions, changes of its columns, and what happens to the tool that captures it.

A history is drawn from a seed and from what is to happen. It knows nothing of files, settings or vendors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Literal

Row = Mapping[str, Any]
Key = tuple[Any, ...]
Kind = Literal[
    "int4", "int8", "decimal", "float8", "text", "bool", "timestamp", "timestamptz", "date", "time", "longtime",
    "bytes", "int2", "float4", "numeric", "uuid", "json", "color", "interval", "timestamp3", "time3",
]  # fmt: skip
Op = Literal["I", "U", "D", "T"]
StepKind = Literal["commit", "add_column", "drop_column", "reload", "resume", "failover", "incremental", "flush"]

START = datetime(2025, 10, 25, 22, 0, tzinfo=UTC)
"""Some hours before clocks in Europe go back, so that names in local time come twice."""
PRECISION, SCALE = 12, 2
"""Of each decimal column."""

COLORS = ("red", "blue")
"""Of the type `color`, an enum."""


@dataclass(frozen=True)
class Interval:
    """Parts that no other one holds: a month has no number of days, a day none of hours."""

    months: int
    days: int
    micros: int

    def __str__(self) -> str:
        return f"{self.months} months {self.days} days {self.micros} microseconds"


@dataclass(frozen=True)
class Column:
    """Attributes:
    default: value that old rows get when the column is added, and inserts that don't name it.
    """

    name: str
    kind: Kind
    default: Any = None


@dataclass(frozen=True)
class Change:
    """A change of one row; a truncate has no rows.

    Attributes:
        unlogged: columns that the source's log leaves out of an update, because it did not change them.
    """

    op: Op
    before: Row | None = None
    after: Row | None = None
    unlogged: frozenset[str] = frozenset()

    @property
    def row(self) -> Row:
        """The row that the change is about."""
        row = self.after if self.after is not None else self.before
        return {} if row is None else row


@dataclass(frozen=True)
class Step:
    """Attributes:
    at: of a commit its commit time.
    columns, rows: of the table after the step.
    """

    kind: StepKind
    at: datetime
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class History:
    """Attributes:
    columns, loaded: of the table when it is captured first.
    happens: the events that it was drawn for.
    table: its name, in the schema `s`.
    """

    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    loaded: tuple[Row, ...]
    steps: tuple[Step, ...]
    happens: Mapping[str, Any]
    table: str = "t"

    @property
    def last_columns(self) -> tuple[Column, ...]:
        return self.steps[-1].columns if self.steps else self.columns

    @property
    def last_rows(self) -> tuple[Row, ...]:
        return self.steps[-1].rows if self.steps else self.loaded

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.keys)

    def changes(self) -> Iterator[tuple[Step, Change]]:
        for step in self.steps:
            for change in step.changes:
                yield step, change


EVENTS: Mapping[str, tuple[Any, ...]] = {
    "keys": ("number", "text", "two"),
    "values": ("plain", "quotes", "empty", "wide"),
    "moved": (False, True),
    "again": (False, True),
    "same_time": (False, True),
    "unlogged": (False, True),
    "added": ("", "null", "default"),
    "dropped": (False, True),
    "truncated": (False, True),
    "reloaded": (False, True),
    "resumed": (False, True),
    "failed_over": (False, True),
    "incremental": (False, True),
    "empty_load": (False, True),
    "arrival": ("each", "once", "swapped"),
}
"""What may happen, with its values; the first of each is the usual one.

`again`: a key is deleted and inserted, or more, in one transaction. `arrival`: the reader runs after each group of
files, once for all, or the last two groups come in the other order.
"""

_KEYS: Mapping[str, tuple[str, ...]] = {"number": ("id",), "text": ("code",), "two": ("id", "part")}
_PLAIN = ("Ada", "Bo", "Chloë", "Ångström", "東京", "x" * 40)
_TEXTS: Mapping[str, tuple[str | None, ...]] = {
    "plain": (*_PLAIN, None),
    "quotes": (*_PLAIN, 'say "hi"', '"quoted"', '"', '""', 'a "b', "it's", "two\nlines", "cr\r\nlf", "cr\ralone",
               "a,b", ",", "a;b", "tab\there", "back\\slash", "ends\\"),
    "empty": (*_PLAIN, "", " ", "  padded  ", "NULL", "null", "\\N", "0", "007", None),
    "wide": ("y" * 3000, "ż" * 2000, *_PLAIN, None),
}  # fmt: skip
_LARGE = ("y" * 3000, "ż" * 2000, "z" * 2500, "Ada", "", None)
"""Of a column that a log may leave out; PostgreSQL does so for values above 2 kB."""
_CODES: Mapping[str, tuple[str, ...]] = {
    "plain": ("a", "b", "c", "d", "e", "f", "g"),
    "quotes": ('"a"', 'b"', "c,d", "c", "d\ne", "e", "f"),
    "empty": ("", " ", "a", "A", "a ", "NULL", "0"),
    "wide": ("a" * 200, "b", "c", "d", "e", "f", "g"),
}


@dataclass
class _Drawing:
    """A table that is being changed."""

    random: Random
    happens: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    at: datetime = START
    steps: list[Step] = field(default_factory=list)

    @property
    def keys(self) -> tuple[str, ...]:
        return _KEYS[self.happens["keys"]]

    def step(self, kind: StepKind, *changes: Change) -> None:
        rows = tuple(dict(row) for row in self.rows.values())
        self.steps.append(Step(kind, self.at, self.columns, rows, changes))

    def pass_time(self) -> None:
        self.at += timedelta(minutes=self.random.randint(3, 25), microseconds=self.random.randint(0, 999_999))

    def free_key(self) -> dict[str, Any] | None:
        """Values of the key columns that no row has."""
        codes = _CODES[self.happens["values"]]
        every = [{"id": n, "code": codes[n - 1], "part": 1 + n % 2} for n in range(1, len(codes) + 1)]
        free = [values for values in every if tuple(values[name] for name in self.keys) not in self.rows]
        return self.random.choice(free) if free else None

    def value(self, column: Column) -> Any:
        """A value of a column; one of eight is null."""
        if column.kind == "text":
            is_large = column.name == "note" and self.happens["unlogged"]
            return self.random.choice(_LARGE if is_large else _TEXTS[self.happens["values"]])
        return None if self.random.random() < 0.125 else _value(column.kind, self.random)

    def new_row(self, key: Row) -> dict[str, Any]:
        row = {column.name: self.value(column) for column in self.columns}
        return {**row, **{name: value for name, value in key.items() if name in row}}

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.keys)

    def insert(self) -> Change | None:
        free = self.free_key()
        if free is None:
            return None
        row = self.new_row(free)
        self.rows[self.key(row)] = row
        return Change("I", after=dict(row))

    def update(self) -> Change | None:
        if not self.rows:
            return None
        before = self.rows.pop(self.random.choice(sorted(self.rows, key=str)))
        after = dict(before)
        for column in self._others():
            if self.random.random() < 0.5:
                after[column.name] = self.value(column)
        if self.happens["moved"] and self.random.random() < 0.4 and (free := self._moved_to(before)):
            after |= free
        self.rows[self.key(after)] = after
        return Change("U", before, dict(after), self._unlogged(before, after))

    def delete(self) -> Change | None:
        if not self.rows:
            return None
        return Change("D", before=self.rows.pop(self.random.choice(sorted(self.rows, key=str))))

    def _moved_to(self, before: Row) -> dict[str, Any] | None:
        free = self.free_key()
        if free is None or tuple(free[name] for name in self.keys) == self.key(before):
            return None
        return {name: free[name] for name in ("id", "code", "part") if name in before}

    def _others(self) -> list[Column]:
        return [column for column in self.columns if column.name not in ("id", "code", "part")]

    def _unlogged(self, before: Row, after: Row) -> frozenset[str]:
        """The source's log may leave out the large text where it did not change."""
        same = before.get("note") == after.get("note")
        return frozenset(["note"]) if self.happens["unlogged"] and same else frozenset()

    def commit(self) -> None:
        """A transaction of one to three changes; by `again`, a key that goes and comes back in it."""
        changes: list[Change | None] = []
        for _ in range(self.random.randint(1, 3)):
            act = self.random.choice([self.insert, self.update, self.update, self.delete])
            changes.append(act() or self.insert())
        if self.happens["again"] and self.rows:
            changes += self._again()
        made = [change for change in changes if change is not None]
        if made:
            self.step("commit", *made)
        if not self.happens["same_time"] or self.random.random() < 0.3:
            self.pass_time()

    def _again(self) -> list[Change | None]:
        key = self.random.choice(sorted(self.rows, key=str))
        old = self.rows.pop(key)
        row = {**self.new_row(old), **{name: old[name] for name in ("id", "code", "part") if name in old}}
        self.rows[key] = row
        back = [Change("D", before=old), Change("I", after=dict(row))]
        return (
            [*back, Change("D", before=dict(row)), Change("I", after=dict(row))]
            if self.random.random() < 0.4
            else [*back]
        )


def _value(kind: Kind, random: Random) -> Any:
    moment = START + timedelta(days=random.randint(-20_000, 5_000), microseconds=random.randint(0, 86_399_999_999))
    return {
        "int4": lambda: random.choice([0, -1, 7, 2**31 - 1, -(2**31)]),
        "int8": lambda: random.choice([0, 2**53 + 1, -(2**63), 2**63 - 1]),
        "decimal": lambda: Decimal(random.choice(["0.00", "-0.01", "9999999999.99", "1.10", "-12.00"])),
        "float8": lambda: random.choice([0.0, 0.1, -1.5e300, 1e-300, 123456789.125]),
        "text": lambda: "t",
        "bool": lambda: random.random() < 0.5,
        "timestamp": lambda: moment.replace(tzinfo=None),
        "timestamptz": lambda: moment,
        "date": lambda: random.choice([moment.date(), date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31)]),
        "time": lambda: timedelta(microseconds=random.choice([0, 1, 86_399_999_999, 3_600_000_000])),
        "longtime": lambda: random.choice(
            [timedelta(0), -timedelta(hours=30, seconds=1), timedelta(hours=838, minutes=59)]
        ),
        "bytes": lambda: random.choice([b"", b"\x00\xff", b"plain", bytes(range(256))]),
        "int2": lambda: random.choice([0, -32768, 32767]),
        "float4": lambda: random.choice([0.5, -2.25, 16777216.0]),
        "numeric": lambda: Decimal(
            random.choice(["0", "12300", "1.500", "-0.00000001", "123456789012345678901234567890.12"])
        ),
        "uuid": lambda: f"a0eebc99-9c0b-4ef8-bb6d-{random.randint(0, 2**48 - 1):012x}",
        "json": lambda: random.choice(['{"a": [1, null]}', "null", '"\\u00e9"', "[]"]),
        "color": lambda: random.choice(COLORS),
        "interval": lambda: random.choice(
            [Interval(0, 0, 0), Interval(14, -3, 14_706_789_000), Interval(-14, 0, -1_500_000), Interval(1, 40, 1)]
        ),
        "timestamp3": lambda: moment.replace(tzinfo=None, microsecond=moment.microsecond // 1000 * 1000),
        "time3": lambda: timedelta(milliseconds=random.choice([0, 1, 86_399_999, 3_600_000])),
    }[kind]()


def drawn(seed: str, happens: Mapping[str, Any], kinds: Sequence[Kind]) -> History:
    """A history in which all of this happens.

    Args:
        happens: a value for each of `EVENTS`.
        kinds: of columns that the source's database can have.
    """
    random = Random(seed)  # noqa: S311 - no secret
    drawing = _Drawing(random, happens, _columns(happens, kinds))
    while not happens["empty_load"] and len(drawing.rows) < 4:
        drawing.insert()
    columns, loaded = drawing.columns, tuple(dict(row) for row in drawing.rows.values())
    drawing.pass_time()
    for number in range(4):
        for _ in range(random.randint(1, 3)):
            drawing.commit()
        _happen(drawing, number)
        drawing.step("flush")
    return History(drawing.keys, columns, loaded, tuple(drawing.steps), happens)


def _columns(happens: Mapping[str, Any], kinds: Sequence[Kind]) -> tuple[Column, ...]:
    first = [Column("code", "text")] if happens["keys"] == "text" else [Column("id", "int8"), Column("part", "int4")]
    more = [Column(f"c_{kind}", kind) for kind in kinds if kind != "text"]
    return (*first, Column("name", "text"), *more, Column("note", "text"))


_WHEN: Mapping[int, tuple[str, ...]] = {
    0: ("incremental", "resumed", "added"), 1: ("truncated", "dropped", "reloaded"), 2: ("failed_over", "resumed"),
    3: ("reloaded",),
}  # fmt: skip
"""What may happen after which group of transactions. A reload comes in one of two groups, by chance."""


def _happen(drawing: _Drawing, number: int) -> None:
    for name in _WHEN[number]:
        if not drawing.happens[name]:
            continue
        if name == "reloaded" and (drawing.random.random() < 0.5) == (number == 1):
            continue
        _EVENTS[name](drawing)
        drawing.pass_time()


def _add(drawing: _Drawing) -> None:
    default = "filled" if drawing.happens["added"] == "default" else None
    drawing.columns = (*drawing.columns, Column("extra", "text", default))
    drawing.rows = {key: {**row, "extra": default} for key, row in drawing.rows.items()}
    drawing.step("add_column")


def _drop(drawing: _Drawing) -> None:
    drawing.columns = tuple(column for column in drawing.columns if column.name != "name")
    drawing.rows = {key: {n: v for n, v in row.items() if n != "name"} for key, row in drawing.rows.items()}
    drawing.step("drop_column")


def _truncate(drawing: _Drawing) -> None:
    drawing.rows = {}
    drawing.step("commit", Change("T"))


def _reload(drawing: _Drawing) -> None:
    """A tool that starts anew takes longer than a tick of a clock: what it delivered before was committed earlier."""
    drawing.at += timedelta(milliseconds=1)
    drawing.step("reload")


def _kind(kind: StepKind) -> Any:
    return lambda drawing: drawing.step(kind)


_EVENTS: Mapping[str, Any] = {
    "added": _add, "dropped": _drop, "truncated": _truncate, "reloaded": _reload, "resumed": _kind("resume"),
    "failed_over": _kind("failover"), "incremental": _kind("incremental"),
}  # fmt: skip


def shortened(history: History, steps: int) -> History:
    """The history up to a step, for a smaller example of what goes wrong."""
    return replace(history, steps=history.steps[:steps])
