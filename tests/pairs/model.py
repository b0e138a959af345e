"""What the tables must hold: the source's changes one after the other, under the options of the row.

Nothing here knows of files, batches, arrival or commits.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_gddl.contract.spec import TableSpec
from tests.pairs.source import BEGAN, COLUMNS, Change, Row, Source, fits

Lines = Counter[str]


@dataclass
class Model:
    """Attributes:
    rows: by id as the table has them before columns are left out; without keys in `logged`.
    states: by id what it had in order: the change, and the row after it or null.
    is_begun_wide: the first file that the table has has a type of `q` that all values fit.
    """

    source: Source
    rows: dict[str, Row] = field(default_factory=dict)
    logged: list[tuple[Change, Row]] = field(default_factory=list)
    states: dict[str, list[tuple[Change, Row | None]]] = field(default_factory=dict)
    quarantined: int = 0
    is_begun_wide: bool = False

    @classmethod
    def of(cls, source: Source) -> Model:
        model = cls(source)
        loaded = sorted(source.loaded, key=lambda one: source.tied_first and one.row["v"] == "first")
        for change in (*loaded, *(change for file in source.files for change in file)):
            model.apply(change)
        if source.late is not None:
            model.apply(model.after_all(source.late))
        return model

    def after_all(self, change: Change) -> Change:
        """A forced change, which has the place of its key's last one."""
        states = self.states.get(change.row["id"], [])
        return replace(change, seq=max(change.seq, *(known.seq for known, _ in states), 0), commit=change.seq)

    @property
    def spec(self) -> TableSpec:
        return self.source.row

    def apply(self, change: Change) -> None:
        if change.op == "T":
            self._truncate(change)
        elif change.op == "D":
            self._put(change, change.row["id"], None)
        elif change.op == "U" and change.before["id"] != change.row["id"] and self.spec.dialect == "debezium":
            self._put(change, change.before["id"], None)
            self._insert(change, change.row)
        elif change.op == "U":
            self._update(change)
        else:
            self._insert(change, change.row)

    def _truncate(self, change: Change) -> None:
        if self.spec.truncate != "report":
            self.logged = []
            for key in list(self.rows):
                self._put(change, key, None)

    def _insert(self, change: Change, row: Row) -> None:
        if self._outside(row):
            if change.op != "R" and self.spec.keys:
                self._put(change, row["id"], None)
        elif self._fails(row):
            self.quarantined += 1
        elif not self.spec.keys:
            self.logged.append((change, row))
        else:
            self._put(change, row["id"], row)

    def _update(self, change: Change) -> None:
        old, moved = change.before["id"], change.before["id"] != change.row["id"]
        carried = {name for name in change.carried
                   if not (self.spec.ignore_null_updates and change.row.get(name) is None)}  # fmt: skip
        if self.spec.where is not None and "n" not in carried:
            self.quarantined += 1
            return
        own = {name: change.row.get(name) for name in carried}
        if self._outside(own):
            self._put(change, old, None)
        elif "n" in carried and self._fails(own):
            self.quarantined += 1
        else:
            images = change.before if self.source.images == "whole" else {}
            base = images if moved else self.rows.get(old, {})
            if moved:
                self._put(change, old, None)
            named = {"id", "part"} if self._tells_part(change) else {"id"}
            self._put(change, change.row["id"], {**base, **own, **{name: change.row[name] for name in named}})

    def _tells_part(self, change: Change) -> bool:
        """A list of columns names it where it is a key or differs; what a list does not name is not known."""
        is_named = "part" in self.spec.keys or change.before.get("part") != change.row.get("part")
        return self.spec.columns_to_update is None or is_named

    def _outside(self, row: Row) -> bool:
        return self.spec.where is not None and row.get("n") in (None, 3)

    def _fails(self, row: Row) -> bool:
        rules = self.spec.expect.values()
        return any(rule.on == "quarantine" for rule in rules) and row.get("n") == 4

    def _put(self, change: Change, key: str, row: Row | None) -> None:
        self.states.setdefault(key, []).append((change, row))
        self.rows.pop(key, None)
        if row is not None:
            self.rows[key] = row

    def reloaded(self) -> None:
        """The table after another full load of the source as it is now."""
        self.rows, self.logged = {}, []
        for row in self.source.rows.values():
            self._insert(Change(seq=0, op="R", row=row), row)

    def replica(self) -> Lines:
        rows = [row for _, row in self.logged] if not self.spec.keys else list(self.rows.values())
        return Counter(_line(self.shown(row)) for row in rows)

    def history(self) -> Lines:
        return Counter(line for key in self.states for line in self._versions(self.states[key]))

    def _versions(self, states: Sequence[tuple[Change, Row | None]]) -> Iterator[str]:
        held: list[tuple[Any, Row | None, Change]] = [
            (self.source.number_of(change), None if row is None else self.shown(row), change) for change, row in states
        ]
        held = [state for at, state in enumerate(held) if at + 1 == len(held) or held[at + 1][0] != state[0]]
        times = self._times([change for _, _, change in held])
        runs: list[list[tuple[Any, Row | None, datetime | None]]] = []
        for (number, shown, _), time in zip(held, times, strict=True):
            state = (number, shown, time)
            if runs and _tracked(self.spec, runs[-1][-1][1]) == _tracked(self.spec, shown):
                runs[-1].append(state)
            else:
                runs.append([state])
        for run, following in zip(runs, [*runs[1:], None], strict=True):
            if (row := run[-1][1]) is not None:
                ends = (None, None) if following is None else (following[0][0], following[0][2])
                yield _line({**row, "start": run[0][0], "end": ends[0], "from": run[0][2], "to": ends[1]})

    def _times(self, changes: Sequence[Change]) -> Iterator[datetime | None]:
        """Commit times of a key's changes; one that goes back counts as the latest before it."""
        latest = BEGAN - timedelta(days=1)
        for change in changes:
            committed = self.source.committed(change)
            latest = latest if committed is None else max(latest, committed)
            yield committed and latest

    def shown(self, row: Row) -> Row:
        """A row as readers see it, without technical columns."""
        found = dict.fromkeys((*COLUMNS, *(["w"] if self.source.widens else []))) | row
        if self.source.retyped == "text" and found["q"] is not None:
            found["q"] = str(found["q"])
        elif not fits(found["q"]) and self.spec.schema_evolution.type_change == "rescue" and not self.is_begun_wide:
            found["q"] = None
        for name, value in self.spec.derive.items():
            assert value == "n > 2 or v = 'x'", value
            more = None if found["n"] is None else found["n"] > 2
            found[name] = _either(more, None if found["v"] is None else found["v"] == "x")
        for name, method in self.spec.mask.items():
            text = found[name]
            found[name] = None if method == "null" or text is None else hashlib.sha256(text.encode()).hexdigest()
        if self.spec.schema_evolution.new_column in ("ignore", "rescue"):
            found.pop("w", None)
        return {name: value for name, value in found.items() if self._is_kept(name)}

    def _is_kept(self, name: str) -> bool:
        spec = self.spec
        if name in spec.keys or name in spec.derive:
            return True
        return name not in spec.exclude_columns and (spec.columns is None or name in spec.columns)


def _either(one: bool | None, other: bool | None) -> bool | None:
    """`or` of SQL."""
    return True if True in (one, other) else None if None in (one, other) else False


def _tracked(spec: TableSpec, row: Row | None) -> Row | None:
    untracked = {*spec.track_history_except, *spec.keys}
    return None if row is None else {name: value for name, value in row.items() if name not in untracked}


def _line(row: Row) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def line_of(row: Row, columns: Sequence[str]) -> str:
    """A row that was read, in these of its columns."""
    return _line({name: row.get(name) for name in columns})
