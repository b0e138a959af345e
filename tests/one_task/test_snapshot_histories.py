"""Random exports of a table under random options, in any order of arrival, against a dict of the newest export's rows.

An export spells and types its keys in its own way, may lack a column or write its name in another case, and comes
late or in order; between runs tables are rebuilt, lost and reloaded. The oracle knows values alone: keys are Python's,
so that 1, 01 and 1.00 are one. Each pair of values of two options is in one of `ROWS`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.table_spec import Expectation, SchemaEvolution, SchemaGate
from tests.harness.lake import Lake
from tests.one_task.exports import FORMAT, Exports, codes, csv_of

pytestmark = pytest.mark.wide

Row = dict[str, Any]
"""`v`, and `n` where the export has it."""
Export = tuple[dict[Any, Row], bool]
"""Rows by key, and whether it has `n`."""


@dataclass(frozen=True)
class Keys:
    """A kind of keys.

    Attributes:
        values: as Python's.
        spell: a value as an export of CSV writes it; null: exports are parquet, of one of `types`.
        declared: their type in the row; empty: none.
        stored: a value as the table has it.
    """

    values: Sequence[Any]
    spell: Callable[[Any, random.Random], str] | None = None
    types: Sequence[pa.DataType] = ()
    declared: str = ""
    mask: str = ""

    def stored(self, value: Any) -> Any:
        return sha256(str(value).encode()).hexdigest() if self.mask else value


def _number(value: Any, chosen: random.Random) -> str:
    return chosen.choice(["{}", "0{}", "+{}", " {}"]).format(value)


def _decimal(value: Decimal, chosen: random.Random) -> str:
    return chosen.choice(["{}", "0{}", "{}0"]).format(value)


def _day(value: date, chosen: random.Random) -> str:
    return chosen.choice(["{}", " {}", "{} "]).format(value.isoformat())


def _moment(value: datetime, chosen: random.Random) -> str:
    shifted = value.astimezone(timezone(timedelta(hours=2)))
    return chosen.choice([f"{value:%Y-%m-%d %H:%M:%S}", f"{value:%Y-%m-%dT%H:%M:%SZ}", shifted.isoformat()])


NUMBERS = (1, 2, 3, 10, 11)
KEYS = {
    "int": Keys(NUMBERS, _number, declared="int"),
    "decimal": Keys(tuple(Decimal(f"{n}.5") for n in NUMBERS), _decimal, declared="decimal(10,3)"),
    "date": Keys(tuple(date(2024, 2, n) for n in NUMBERS), _day, declared="date"),
    "timestamp": Keys(tuple(datetime(2024, 2, n, tzinfo=UTC) for n in NUMBERS), _moment, declared="timestamp"),
    "text": Keys(("1", "01", "a", "A", "1.0"), lambda value, _: value),
    "typed": Keys(NUMBERS, types=(pa.int32(), pa.int64(), pa.decimal128(12, 2), pa.float64())),
    "masked": Keys(NUMBERS, _number, declared="int", mask="hash"),
}
FIELDS: Mapping[str, Sequence[Any]] = {
    "keys": tuple(KEYS),
    "order": ("in order", "late"),
    "dropped_column": ("keep", "null"),
    "delete": ("hard", "soft"),
    "history": (False, True),
    "mask": ("", "hash", "null"),
    "exclude": (False, True),
    "rename": (False, True),
    "target": (False, True),
    "gate": ("", "expect", "require", "backward"),
    "parts": (False, True),
    "case": (False, True),
    "derive": (False, True),
    "where": (False, True),
    "repair": ("", "rebuild", "reload", "tables lost", "ledger lost", "killed"),
}
REFUSED = (("gate", "backward"), ("keys", "typed"))
"""A pair that a load refuses: the gate lets no key of another type through."""
Drawn = Mapping[str, Any]


def pairs_of(drawn: Drawn) -> set[tuple[Any, ...]]:
    return set(combinations(sorted(drawn.items()), 2))


def possible() -> set[tuple[Any, ...]]:
    """All pairs of values of two options."""
    values = [(name, value) for name, every in sorted(FIELDS.items()) for value in every]
    return {pair for pair in combinations(values, 2) if pair[0][0] != pair[1][0]} - {REFUSED}


def covering() -> list[Drawn]:
    """Rows in which each pair of values of two options comes at least once."""
    chosen, found, left = random.Random(52), list[Drawn](), possible()  # noqa: S311 - no secret
    while left:
        drawn = [{name: chosen.choice(values) for name, values in FIELDS.items()} for _ in range(60)]
        pair = chosen.choice(sorted(left, key=repr))
        drawn = [one for row in drawn if REFUSED not in pairs_of(one := {**row, **dict(pair)})]
        found.append(max(drawn, key=lambda row: len(pairs_of(row) & left)))
        left -= pairs_of(found[-1])
    return found


ROWS = covering()
SAMPLE = 16
"""Rows that are played each time; the others in the deep lane."""


@dataclass
class History:
    """A table under drawn options, and what it should hold."""

    chosen: random.Random
    drawn: Drawn
    exports: Exports
    landed: dict[int, Export] = field(default_factory=dict)
    loaded: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, seed: int, lake: Lake, drawn: Drawn) -> History:
        chosen = random.Random(seed)  # noqa: S311 - no secret
        return cls(chosen, drawn, Exports(lake).of(**_row_of(drawn)))

    @property
    def keys(self) -> Keys:
        return KEYS[self.drawn["keys"]]

    @property
    def always(self) -> bool:
        """Whether each export has all columns, since the gate asks for it; or since the ledger gets lost, which alone
        knows the columns that stored changes carry.
        """
        return self.drawn["gate"] in ("require", "backward") or self.drawn["repair"] == "ledger lost"

    def export(self, before: dict[Any, Row]) -> Export:
        has = self.always or self.chosen.random() < 0.6
        rows = {key: dict(row) for key, row in before.items()}
        for key in self.chosen.sample(self.keys.values, 2):
            if self.chosen.random() < 0.35:
                rows.pop(key, None)
            else:
                rows[key] = {"v": self.chosen.choice("abc"), "n": self.chosen.choice(["x", "y", None])}
        return rows, has

    def land(self, day: int, export: Export) -> None:
        rows, has = export
        has = has or bool((self.drawn["mask"] or self.drawn["exclude"]) and not self._is_made)  # a first load needs it
        self.landed[day] = (rows, has)
        other = self.drawn["case"] and self.chosen.random() < 0.5
        names = {"id": "ID" if other else "id", "v": "V" if other else "v", "n": self._name_of_n(other=other)}
        columns = ["id", "v", *(["n"] if has else [])]
        items = list(rows.items())
        self.chosen.shuffle(items)
        values = {"id": [key for key, _ in items], **{c: [row[c] for _, row in items] for c in columns[1:]}}
        header = [names[column] for column in columns]
        if (spell := self.keys.spell) is not None:
            values["id"] = [spell(key, self.chosen) for key in values["id"]]
            lines = list(zip(*(values[column] for column in columns), strict=True))
            self.exports.land(day, csv_of(lines, ",".join(header)))
            return
        kind = self.chosen.choice(self.keys.types)
        ids = pa.array(values["id"], pa.int32()).cast(kind)
        rest = [pa.array(values[column], pa.string()) for column in columns[1:]]
        self.exports.land(day, pa.table([ids, *rest], names=header))

    @property
    def _is_made(self) -> bool:
        return Path(self.exports.lake.layout(self.exports.spec).replica).exists()

    def _name_of_n(self, *, other: bool) -> str:
        name = "SRC_N" if self.drawn["rename"] else "n"
        return name.swapcase() if other else name

    def states(self) -> dict[int, dict[Any, Row]]:
        """The table at the version of each export that has landed."""
        found: dict[int, dict[Any, Row]] = {}
        before: dict[Any, Row] = {}
        for day, (rows, has) in sorted(self.landed.items()):
            kept = self.drawn["dropped_column"] == "keep"
            lost = {key: before.get(key, {}).get("n") if kept else None for key in rows}
            before = {
                key: {"v": row["v"], "n": row["n"] if has else lost[key]}
                for key, row in rows.items()
                if not (self.drawn["where"] and row["v"] == "c")
            }
            found[day] = before
        return found

    def check(self) -> None:
        wanted = {day: self._stored(rows) for day, rows in self.states().items()}
        assert self._replica() == wanted[max(wanted)]
        if self.drawn["history"]:
            assert {day: self._as_of(day) for day in wanted} == wanted

    def _stored(self, rows: dict[Any, Row]) -> dict[Any, tuple[Any, ...]]:
        return {
            self.keys.stored(key): (
                row["v"],
                self._stored_n(row["n"]),
                row["v"].upper() if self.drawn["derive"] else None,
            )
            for key, row in rows.items()
        }

    def _stored_n(self, value: str | None) -> str | None:
        if value is None or self.drawn["exclude"] or self.drawn["mask"] == "null":
            return None
        return sha256(value.encode()).hexdigest() if self.drawn["mask"] == "hash" else value

    def _replica(self) -> dict[Any, tuple[Any, ...]]:
        rows = self.exports.rows("id", "v", "n", "d")
        found = {self._key(key): tuple(values) for key, *values in rows}
        assert len(found) == len(rows)
        return found

    def _key(self, value: Any) -> Any:
        return int(value) if self.drawn["keys"] == "typed" else value

    def _as_of(self, day: int) -> dict[Any, tuple[Any, ...]]:
        path, version = self.exports.lake.layout(self.exports.spec).history, f"202401{day:02d}{0:09d}"
        rows = pa.table(DeltaTable(path).scan()).to_pylist() if Path(path).exists() else []
        named = ({name.lower(): value for name, value in row.items()} for row in rows)
        found = [
            (self._key(row["id"]), (row["v"], row.get("n"), row.get("d")))
            for row in named
            if row["__start_at"] <= version and (row["__end_at"] is None or version < row["__end_at"])
        ]
        assert len(found) == len(dict(found))
        return dict(found)

    def run(self) -> None:
        found, entering = codes(self.exports.run()), self._entering()
        self.loaded = set(self.landed)
        assert found.pop("UPDATE_WITHOUT_PRIOR", 0) in ({entering} if self._is_in_order else range(entering + 1))
        assert found.keys() <= {"TEXT_CONVERTED", "COLUMN_NOT_FOUND", "COLUMN_DROPPED"}

    @property
    def _is_in_order(self) -> bool:
        return bool(self.drawn["order"] == "in order")

    def _entering(self) -> int:
        """How many keys come into the filter by an export without `n`, which then is null, though the row kept it.

        Those of exports that are new, or, out of order, of all.
        """
        if not self.drawn["where"] or self.drawn["dropped_column"] != "keep" or self.drawn["exclude"]:
            return 0
        keys, before, known = set(), dict[Any, Row](), False
        for day, (rows, has) in sorted(self.landed.items()):
            if known and not has and not (self._is_in_order and day in self.loaded):
                keys |= {key for key in rows.keys() & before.keys() if before[key]["v"] == "c" != rows[key]["v"]}
            before, known = rows, known or has
        return len(keys)

    def repair(self) -> None:
        layout, repair = self.exports.lake.layout(self.exports.spec), self.drawn["repair"]
        lost = {"tables lost": [layout.changes, layout.replica, layout.history], "ledger lost": [layout.state]}
        for path in lost.get(repair, []):
            shutil.rmtree(path, ignore_errors=True)
        if repair == "reload":
            self.exports.run(action="reload", confirmed=True)
        elif repair and repair != "killed":
            self.exports.run(action="rebuild")


def _row_of(drawn: Drawn) -> dict[str, Any]:
    """Fields of the row for drawn options."""
    keys = KEYS[drawn["keys"]]
    options: dict[str, Any] = dict(FORMAT)
    options |= {"csv_header": True} if keys.spell is not None else {}
    options |= {"types": {"id": keys.declared}} if keys.declared else {}
    mask = {"id": keys.mask} if keys.mask else {}
    gate = {
        "expect": {"expect": {"some": Expectation(rule="v is not null", on="fail")}},
        "require": {"schema": SchemaGate(require=("v",))},
        "backward": {"schema": SchemaGate(compatible="backward")},
    }
    return {
        "options": options,
        "mask": mask | ({"n": drawn["mask"]} if drawn["mask"] and not drawn["exclude"] else {}),
        "exclude_columns": ("n",) if drawn["exclude"] else (),
        "rename": {"SRC_N": "n"} if drawn["rename"] else {},
        "delete": drawn["delete"],
        "history": drawn["history"],
        "derive": {"d": "upper(v)"} if drawn["derive"] else {},
        "where": "v <> 'c'" if drawn["where"] else None,
        "schema_evolution": SchemaEvolution(dropped_column=drawn["dropped_column"]),
        **({"table": "s.new", "source_table": "s.t"} if drawn["target"] else {}),
        **gate.get(drawn["gate"], {}),
    }


def play(seed: int, lake: Lake, monkeypatch: pytest.MonkeyPatch, drawn: Drawn, days: int = 7) -> None:
    """After each run the replica is what the exports say that have come, and so is the history at each of them."""
    history = History.of(seed, lake, drawn)
    if history.drawn["parts"]:
        history.exports = history.exports.limited(decoded_bytes=500)
    truth, rows = dict[int, Export](), dict[Any, Row]()
    for day in range(1, days + 1):
        truth[day] = history.export(rows)
        rows = truth[day][0]
    arrivals = list(truth)
    if history.drawn["order"] == "late":
        history.chosen.shuffle(arrivals)
    for group in in_groups(arrivals, history.chosen):
        for day in group:
            history.land(day, truth[day])
        if history.drawn["repair"] == "killed":
            with monkeypatch.context() as patched:
                patched.setattr("spark_jobs.job.table_job.run_table", _die)
                assert history.exports.fault() == "UNEXPECTED"
        history.run()
        if any(history.states().values()):
            history.check()
            if history.chosen.random() < 0.3:
                history.repair()
                history.check()


def _die(*_: Any) -> None:
    raise RuntimeError("killed")


def in_groups(days: Sequence[int], chosen: random.Random) -> Iterator[Sequence[int]]:
    at = 0
    while at < len(days):
        count = chosen.choice([1, 1, 2, 3])
        yield days[at : at + count]
        at += count


def test_each_pair_of_options_is_played() -> None:
    played = set().union(*map(pairs_of, ROWS))
    assert possible() <= played
    assert REFUSED not in played


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n < SAMPLE else pytest.mark.deep) for n in range(len(ROWS))]
)
def test_random_exports_give_the_right_tables(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(number, Lake(tmp_path), monkeypatch, ROWS[number])


@pytest.mark.parametrize("policy", FIELDS["dropped_column"])
@pytest.mark.parametrize("seed", range(5))
def test_random_exports_that_lack_columns(
    seed: int, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = {"dropped_column": policy, "order": "late", "gate": "", "exclude": False, "mask": "", "history": True}
    play(100 + seed, Lake(tmp_path), monkeypatch, {**ROWS[seed], **fixed})


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_random_exports_give_the_right_tables(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(seed, Lake(tmp_path), monkeypatch, ROWS[seed % len(ROWS)])
