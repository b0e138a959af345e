"""A source table that lives for a while, and the files that a service writes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from airflow_gddl.contract.spec import TableSpec
from tests.harness.landing import to_table, write, write_bytes

Row = dict[str, Any]
COLUMNS = ("id", "part", "v", "n", "m", "x", "p", "q", "z")
TYPES: Mapping[str, str] = {
    **dict.fromkeys(("Op", "transact_seq", "id", "v", "m", "x", "p", "w", "z", "cols"), "string"),
    "AR_H_COMMIT_TIMESTAMP": "timestamp[us]",
    "seq": "int64", "step": "int32", "part": "int32", "n": "int32", "forced": "bool", "q": "int32",
}  # fmt: skip
RETYPED: Mapping[str, str] = {"": "int32", "wider": "int64", "text": "string"}
"""Type of `q` in the later files."""
NOT_SENT = "__debezium_unavailable_value"
FILES, CHANGES = 5, 25
SIZE = CHANGES // FILES
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
TIED = "t"
"""A key that two files of the full load have, with other values."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Attributes:
    seq: its number in the log; 0 of a full load. The late forced change has 1, all others more.
    op: `I`, `U`, `D`, `T`, or `R` of a full load.
    row: after it; of a delete before it.
    before: of an update and a delete, the row before it.
    carried: columns that an update carries.
    commit: its number in the log where `seq` is the one that it was given instead; null: `seq`.
    """

    seq: int
    op: str
    row: Row = field(default_factory=dict)
    before: Row = field(default_factory=dict)
    carried: frozenset[str] = frozenset()
    forced: bool = False
    commit: int | None = None


@dataclass
class Source:
    """Attributes:
    loaded: rows of the full load; `files`: changes in the order of the log, a list a file.
    rows: those at the end, by id.
    columns: those of the table by now.
    tied_first: of the rows of `TIED` the table takes that of the first file.
    late: the forced change, which arrives last.
    """

    row: TableSpec
    rng: Random
    truncates: int = 0
    moves: bool = False
    widens: bool = False
    narrows: bool = False
    tied: bool = False
    retyped: str = ""
    images: str = "whole"
    tied_first: bool = False
    late: Change | None = None
    columns: Sequence[str] = COLUMNS
    loaded: list[Change] = field(default_factory=list)
    files: list[list[Change]] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)

    def lived(self) -> Source:
        """The source after its life."""
        self.loaded = [Change(seq=0, op="R", row=self._inserted(key)) for key in "abcd"]
        if self.tied:
            self.loaded += [Change(seq=0, op="R", row=self._inserted(TIED) | {"v": v}) for v in ("first", "second")]
            self.rows[TIED]["v"] = "second"
        changes = [self._happens(number) for number in range(CHANGES)]
        self.files = [changes[at : at + SIZE] for at in range(0, CHANGES, SIZE)]
        return self

    def _happens(self, number: int) -> Change:
        if self.narrows and number == 4 * SIZE:
            self.columns = [name for name in COLUMNS if name != "z"]
            self.rows = {
                key: {name: row[name] for name in self.columns if name in row} for key, row in self.rows.items()
            }
        if number in (8, 17)[: self.truncates]:
            self.rows = {}
            return Change(seq=number + 2, op="T")
        return self._change(number + 2)

    def force(self) -> None:
        """Add a change, if there are rows, that is before all others in the log, and applies though it arrives last."""
        keys = sorted(set(self.rows) - {TIED})
        if not keys or not self.row.keys:
            return
        before = self.rows[key := self.rng.choice(keys)]
        changed = {"v": "forced", "m": "forced"}
        self.rows[key] = {**before, **changed}
        names = self._carried(before, self.rows[key], changed)
        row = dict(self.rows[key])
        self.late = Change(seq=1, op="U", row=row, before=before, carried=names, forced=True)

    def _values(self) -> Row:
        values = {
            "v": self.rng.choice([None, "x", "y"]), "n": self.rng.choice([None, 1, 2, 3, 4, 5]),
            "m": self.rng.choice(["m1", "m2"]), "x": "secret", "p": self.rng.choice(["north", "south"]),
            "q": self.rng.randrange(100), "z": self.rng.choice(["z1", "z2"]),
        }  # fmt: skip
        return {name: value for name, value in values.items() if name in self.columns}

    def _inserted(self, key: str) -> Row:
        self.rows[key] = {"id": key, "part": 1 if key < "c" else 2, **self._values()} | self._fixed(key)
        return dict(self.rows[key])

    def _fixed(self, key: str) -> Row:
        """No rule leaves out the row that two files of the load have."""
        return {"n": 1} if key == TIED else {}

    def _change(self, seq: int) -> Change:
        free = [key for key in "abcdef" if key not in self.rows]
        kinds = ["I"] if not self.row.keys else ["U"] * 5 + ["D"] + (["I"] * 2 if free else [])
        keys = sorted(set(self.rows) - {TIED})
        kind = self.rng.choice(kinds) if keys else "I"
        if kind == "I":
            key = self.rng.choice("abcdef" if not self.row.keys else free)
            return self._wide(Change(seq=seq, op="I", row=self._inserted(key)))
        key = self.rng.choice(keys)
        if kind == "D":
            gone = self.rows.pop(key)
            return Change(seq=seq, op="D", row=gone, before=gone)
        return self._wide(self._update(seq, key, free))

    def _update(self, seq: int, key: str, free: Sequence[str]) -> Change:
        before = self.rows.pop(key)
        changed = {name: value for name, value in self._values().items() if self.rng.random() < 0.5}
        after = {**before, **changed}
        if self.moves and free and self.rng.random() < 0.4:
            after |= {"id": (new := self.rng.choice(free)), "part": 1 if new < "c" else 2}
        self.rows[after["id"]] = after
        return Change(seq=seq, op="U", row=dict(after), before=before, carried=self._carried(before, after, changed))

    def _carried(self, before: Row, after: Row, changed: Row) -> frozenset[str]:
        missing = () if self.row.schema_evolution.dropped_column == "keep" else set(COLUMNS) - set(self.columns)
        names = {name for name in (*self.columns, *missing) if name not in ("id", "part")}
        if self.row.columns_to_update is not None:
            names = set(changed)
        elif self.row.dialect == "debezium" and before["v"] == after["v"] and before["id"] == after["id"]:
            names -= {"v"} if self.rng.random() < 0.5 else set()
        return frozenset({*names, *(["w"] if self.widens else [])})

    def _wide(self, change: Change) -> Change:
        if self.widens and change.seq > 2 * SIZE + 1:
            change.row["w"] = self.rows[change.row["id"]]["w"] = f"w{change.seq}"
        if self.retyped and change.seq > 3 * SIZE + 1:
            change.row["q"] = self.rows[change.row["id"]]["q"] = (
                2**40 + change.seq if self.retyped == "wider" else "many"
            )
            change = replace(change, carried=change.carried | {"q"})
        return change

    def order(self, change: Change) -> Row:
        """Its sequence columns: two changes in a row share `seq`, and `step` counts them."""
        if not self.row.sequence_by:
            return {"transact_seq": f"{change.seq:035d}"}
        named = {"seq": change.seq // 2, "step": change.seq % 2}
        return {name: named[name] for name in self.row.sequence_by}

    def committed(self, change: Change) -> datetime | None:
        """Its commit time; a full load of AWS DMS says none. The source's clock goes back now and then."""
        if change.op == "R" and self.row.dialect == "dms":
            return None
        number = change.seq if change.commit is None else change.commit
        return BEGAN + timedelta(minutes=number - 5 * (number % 7 == 6))

    def number_of(self, change: Change) -> Any:
        """The sequence as the tables have it; of a full load null, but Debezium's rows have a place."""
        if not self.row.sequence_by and self.row.dialect == "debezium":
            return f"{change.seq + 1:020d}.1.{change.seq + 1:020d}"
        if not change.seq and self.row.dialect == "dms":
            return None
        values = self.order(change)
        return values if len(values) > 1 else next(iter(values.values()))


def file_name(source: Source, number: int, day: int = 1) -> str:
    """Of a change file; 0 is the full load."""
    if source.row.dialect == "debezium":
        return f"t+0+{day * 1000 + number:010d}.json"
    return f"202401{day:02d}-{number:09d}.parquet" if number else "LOAD00000001.parquet"


def landed(source: Source, folder: Path, name: str, changes: Sequence[Change], *, misfit: bool = False) -> None:
    """Write changes as a file; with a row that can't be loaded at its end."""
    bad = Change(seq=CHANGES + 9, op="I" if source.row.keys else "U", row={**dict.fromkeys(COLUMNS), "v": "bad"})
    every = [*written(source, changes), *([bad] if misfit else [])]
    if source.row.dialect == "debezium":
        lines = (json.dumps(event) for change in every for event in _events(source, change))
        write_bytes(folder, name, "".join(f"{line}\n" for line in lines).encode())
        return
    load = name.startswith("LOAD")
    rows = [_of_dms(source, change, load=load) for change in every]
    names = list(dict.fromkeys(name for row in rows for name in row))
    types = {_delivered(source, name): kind for name, kind in TYPES.items()}
    types["q"] = _type_of_q(source, changes)
    if types["q"] == "string":
        texts = ("q", "BI_q")
        rows = [{n: str(v) if n in texts and v is not None else v for n, v in row.items()} for row in rows]
    types |= {f"BI_{name}": kind for name, kind in types.items()}
    write(folder, name, to_table([{n: row.get(n) for n in names} for row in rows], names, types))


def written(source: Source, changes: Sequence[Change]) -> list[Change]:
    """As the file has them: two that share a `seq` the other way round where `step` tells their order."""
    if source.row.sequence_by != ("seq", "step"):
        return list(changes)
    return sorted(changes, key=lambda change: (change.seq // 2, -change.seq))


def _type_of_q(source: Source, changes: Sequence[Change]) -> str:
    """`int32` in a file whose values fit it."""
    values = [row.get("q") for change in changes for row in (change.row, change.before)]
    return RETYPED[source.retyped if any(not fits(value) for value in values) else ""]


def fits(value: Any) -> bool:
    """Whether a value of `q` fits the type that it has at first."""
    return value is None or (isinstance(value, int) and value < 2**31)


def _delivered(source: Source, column: str) -> str:
    """The name under which files have a column."""
    return next((old for old, new in source.row.rename.items() if new == column), column)


def _of_dms(source: Source, change: Change, *, load: bool) -> Row:
    row = source.row
    missing = {"z"} if source.narrows and "z" not in change.row else set()
    data = dict.fromkeys(name for name in COLUMNS if name not in missing) | ({"w": None} if "w" in change.row else {})
    data |= change.row
    if change.op == "U" and row.columns_to_update is not None:
        sent = {"id", "part", *change.carried}
        data = {name: value if name in sent else None for name, value in data.items()}
    found: Row = {} if load else {"Op": change.op, **source.order(change), **_time_of(source, change)}
    found |= {_delivered(source, name): value for name, value in data.items()}
    if load:
        return found
    if row.columns_to_update is not None:
        moved = {name for name in ("part",) if name not in row.keys and change.before.get(name) != change.row.get(name)}
        names = sorted(_delivered(source, name) for name in {*change.carried, *moved} if name in change.row)
        found["cols"] = f"[{', '.join(names)}]" if change.op == "U" else None
    if row.force_update is not None:
        found["forced"] = change.forced
    if row.before_image_prefix is not None:
        images = change.before if change.op == "U" else {}
        if source.images == "keys":
            images = {name: value for name, value in images.items() if name in source.row.keys}
        found |= {f"BI_{_delivered(source, name)}": images.get(name) for name in data}
    return found


def _time_of(source: Source, change: Change) -> Row:
    committed = source.committed(change)
    return {"AR_H_COMMIT_TIMESTAMP": committed and committed.replace(tzinfo=None)}


def _events(source: Source, change: Change) -> Iterator[Row]:
    committed = source.committed(change)
    assert committed is not None
    moment = int(committed.timestamp() * 1000)
    place = {"connector": "postgresql", "lsn": change.seq + 1, "ts_ms": moment, "table": "t"}
    order = source.order(change) if source.row.sequence_by else {}

    def named(row: Row | None) -> Row | None:
        return None if row is None else {_delivered(source, name): value for name, value in {**row, **order}.items()}

    def event(op: str, before: Row | None, after: Row | None) -> Row:
        return {"op": op, "before": named(before), "after": named(after), "source": place, "ts_ms": place["ts_ms"]}

    if change.op == "U" and change.before and change.before["id"] != change.row["id"]:
        yield event("d", change.before, None)
        yield event("c", None, change.row)
    elif change.op == "U":
        held = {} if "v" in change.carried or not change.before else {"v": NOT_SENT}
        yield event("u", None, {**change.row, **held})
    elif change.op == "T":
        yield event("t", None, None)
    else:
        before, after = (change.row, None) if change.op == "D" else (None, change.row)
        yield event({"I": "c", "R": "r", "D": "d"}[change.op], before, after)
