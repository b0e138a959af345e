"""A source table that lives for a while, and the files that a service writes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from airflow_gddl.contract.spec import TableSpec
from tests.harness.landing import to_table, write, write_bytes

Row = dict[str, Any]
COLUMNS = ("id", "part", "v", "n", "m", "x", "p")
TYPES: Mapping[str, str] = {
    **dict.fromkeys(("Op", "transact_seq", "id", "v", "m", "x", "p", "w", "cols"), "string"),
    "seq": "int64", "step": "int32", "part": "int32", "n": "int32", "forced": "bool",
}  # fmt: skip
NOT_SENT = "__debezium_unavailable_value"
FILES, CHANGES = 5, 25


@dataclass(frozen=True, kw_only=True)
class Change:
    """Attributes:
    op: `I`, `U`, `D`, `T`, or `R` of a full load, which has the sequence 0.
    row: after it; of a delete before it.
    before: of an update and a delete, the row before it.
    carried: columns that an update carries.
    """

    seq: int
    op: str
    row: Row = field(default_factory=dict)
    before: Row = field(default_factory=dict)
    carried: frozenset[str] = frozenset()


@dataclass
class Source:
    """Attributes:
    loaded: rows of the full load; `files`: changes in the order of the log, a list a file.
    rows: those at the end, by id.
    """

    row: TableSpec
    moves: bool
    widens: bool
    rng: Random
    loaded: list[Change] = field(default_factory=list)
    files: list[list[Change]] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def lived(cls, row: TableSpec, rng: Random, *, truncated: bool, moved: bool, widened: bool) -> Source:
        source = cls(row, moved, widened, rng)
        source.loaded = [Change(seq=0, op="R", row=source._inserted(key)) for key in "abcd"]
        changes = [source._truncate(seq) if truncated and seq == 12 else source._change(seq)
                   for seq in range(1, CHANGES + 1)]  # fmt: skip
        size = CHANGES // FILES
        source.files = [changes[at : at + size] for at in range(0, CHANGES, size)]
        return source

    def _values(self) -> Row:
        return {
            "v": self.rng.choice([None, "x", "y"]), "n": self.rng.choice([None, 1, 2, 3, 4, 5]),
            "m": self.rng.choice(["m1", "m2"]), "x": "secret", "p": self.rng.choice(["north", "south"]),
        }  # fmt: skip

    def _inserted(self, key: str) -> Row:
        self.rows[key] = {"id": key, "part": 1 if key < "c" else 2, **self._values()}
        return dict(self.rows[key])

    def _change(self, seq: int) -> Change:
        free = [key for key in "abcdef" if key not in self.rows]
        kinds = ["I"] if not self.row.keys else ["U"] * 5 + ["D"] + (["I"] * 2 if free else [])
        kind = self.rng.choice(kinds) if self.rows else "I"
        if kind == "I":
            key = self.rng.choice("abcdef" if not self.row.keys else free)
            return self._wide(Change(seq=seq, op="I", row=self._inserted(key)))
        key = self.rng.choice(sorted(self.rows))
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
        names = {name for name in COLUMNS if name not in ("id", "part")}
        if self.row.columns_to_update is not None:
            names = set(changed)
        elif self.row.dialect == "debezium" and before["v"] == after["v"] and before["id"] == after["id"]:
            names -= {"v"} if self.rng.random() < 0.5 else set()
        return frozenset({*names, *(["w"] if self.widens else [])})

    def _wide(self, change: Change) -> Change:
        if self.widens and change.seq > 2 * CHANGES // FILES:
            change.row["w"] = self.rows[change.row["id"]]["w"] = f"w{change.seq}"
        return change

    def _truncate(self, seq: int) -> Change:
        self.rows = {}
        return Change(seq=seq, op="T")

    def number_of(self, change: Change) -> Any:
        """The sequence as the tables have it; of a full load null, but Debezium's rows have a place."""
        if self.row.sequence_by:
            named = {"seq": change.seq, "step": 0}
            values = {name: named[name] for name in self.row.sequence_by}
            return None if not change.seq and self.row.dialect == "dms" else values if len(values) > 1 else change.seq
        if self.row.dialect == "debezium":
            return f"{change.seq + 1:020d}.1.{change.seq + 1:020d}"
        return f"{change.seq:035d}" if change.seq else None


def file_name(source: Source, number: int, day: int = 1) -> str:
    """Of a change file; 0 is the full load."""
    if source.row.dialect == "debezium":
        return f"t+0+{day * 1000 + number:010d}.json"
    return f"202401{day:02d}-{number:09d}.parquet" if number else "LOAD00000001.parquet"


def landed(source: Source, folder: Path, name: str, changes: Sequence[Change], *, misfit: bool = False) -> None:
    """Write changes as a file; with a row that can't be loaded at its end."""
    bad = Change(seq=CHANGES + 9, op="I" if source.row.keys else "U", row={**dict.fromkeys(COLUMNS), "v": "bad"})
    every = [*changes, *([bad] if misfit else [])]
    if source.row.dialect == "debezium":
        lines = (json.dumps(event) for change in every for event in _events(source, change))
        write_bytes(folder, name, "".join(f"{line}\n" for line in lines).encode())
        return
    load = name.startswith("LOAD")
    rows = [_of_dms(source, change, load=load) for change in every]
    names = list(dict.fromkeys(name for row in rows for name in row))
    types = {_delivered(source, name): kind for name, kind in TYPES.items()}
    types |= {f"BI_{name}": kind for name, kind in types.items()}
    write(folder, name, to_table([{n: row.get(n) for n in names} for row in rows], names, types))


def _delivered(source: Source, column: str) -> str:
    """The name under which files have a column."""
    return next((old for old, new in source.row.rename.items() if new == column), column)


def _of_dms(source: Source, change: Change, *, load: bool) -> Row:
    row = source.row
    data = dict.fromkeys(COLUMNS) | ({"w": None} if "w" in change.row else {}) | change.row
    if change.op == "U" and row.columns_to_update is not None:
        sent = {"id", "part", *change.carried}
        data = {name: value if name in sent else None for name, value in data.items()}
    found: Row = {} if load else {"Op": change.op, **_order(source, change)}
    found |= {_delivered(source, name): value for name, value in data.items()}
    if load:
        return found
    if row.columns_to_update is not None:
        moved = {name for name in ("part",) if name not in row.keys and change.before.get(name) != change.row[name]}
        names = sorted(_delivered(source, name) for name in {*change.carried, *moved} if name in change.row)
        found["cols"] = f"[{', '.join(names)}]" if change.op == "U" else None
    if row.force_update is not None:
        found["forced"] = False
    if row.before_image_prefix is not None:
        images = change.before if change.op == "U" else {}
        found |= {f"BI_{_delivered(source, name)}": images.get(name) for name in data}
    return found


def _order(source: Source, change: Change) -> Row:
    if not source.row.sequence_by:
        return {"transact_seq": f"{change.seq:035d}"}
    return {name: {"seq": change.seq, "step": 0}[name] for name in source.row.sequence_by}


def _events(source: Source, change: Change) -> Iterator[Row]:
    place = {"connector": "postgresql", "lsn": change.seq + 1, "ts_ms": 1_700_000_000_000 + change.seq, "table": "t"}
    order = _order(source, change) if source.row.sequence_by else {}

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
