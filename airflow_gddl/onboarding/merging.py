"""Three-way merge: what was proposed last time, what stands in the files now, what is proposed today. Pure.

A value that a person wrote, changed or removed is a person's from then on: it is kept, and told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_gddl.onboarding.rules import Proposal

Kind = Literal["new_table", "dropped_table", "changed"]


@dataclass(frozen=True)
class Absent:
    """Stands where no value is written; its default holds there."""

    def __repr__(self) -> str:
        return "(not set)"


ABSENT = Absent()


@dataclass(frozen=True, kw_only=True)
class Present:
    """A table's row and keys as they stand in the files.

    Attributes:
        fields: the row's own, nested ones by path (`options.op_column`); `table` and `keys` not among them.
        keys: null: none are written.
        keys_here: the keys are in the keys file of this source, or nowhere; else another place has them, which no merge
            touches.
        fixed: fields that `defaults` set: somebody decided for all tables.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] | None = None
    keys_here: bool = True
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ProposedChange:
    """One value to write, or to take out. `field` is a path, or `keys`; `old` and `new` may be `ABSENT`."""

    table: str
    field: str
    old: Any
    new: Any
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class KeptValue:
    """A person's value that the proposal differs from."""

    table: str
    field: str
    value: Any
    proposed: Any
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class NewRow:
    """A table that has no row yet.

    Attributes:
        fixed: fields that `defaults` set for it.
        named: keys that some keys file has for it already; they hold. Null: none.
    """

    proposal: Proposal
    fixed: frozenset[str] = frozenset()
    named: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Merged:
    """What is to be written, what is left as people have it, and what is to be remembered of each table."""

    rows: tuple[NewRow, ...] = ()
    changes: tuple[ProposedChange, ...] = ()
    kept: tuple[KeptValue, ...] = ()
    remembered: tuple[Proposal, ...] = ()


def merge(before: Proposal | None, present: Present | NewRow, today: Proposal) -> Merged:
    """One table.

    Args:
        before: null: never proposed.
        present: what the files have; a `NewRow` where they have no row of it.
    """
    if isinstance(present, NewRow) and before is None:
        return _new(present, today)
    if isinstance(present, NewRow):
        kept_out = KeptValue(table=today.table, field="table", value=ABSENT, proposed=today.table)
        return Merged(kept=(kept_out,), remembered=() if before is None else (before,))
    if present.keys:
        today = _keyed(today)
    changes: list[ProposedChange] = []
    kept: list[KeptValue] = []
    for step in (*_fields(before, present, today), *_keys(before, present, today)):
        (changes if isinstance(step, ProposedChange) else kept).append(step)  # type: ignore[arg-type] # by its class
    return Merged(changes=tuple(changes), kept=tuple(kept), remembered=(_remembered(before, present, today),))


def _new(row: NewRow, today: Proposal) -> Merged:
    if row.named is None:
        return Merged(rows=(row,), remembered=(today,))
    today = _keyed(today) if row.named else today
    kept = KeptValue(
        table=today.table, field="keys", value=row.named, proposed=today.keys, evidence=today.evidence.get("keys", "")
    )
    return Merged(
        rows=(replace(row, proposal=today),),
        kept=(kept,) if today.keys and row.named != today.keys else (),
        remembered=(replace(today, keys=None),),
    )


def _keyed(today: Proposal) -> Proposal:
    """A table that somebody gave keys is not held back for having none."""
    if today.keys or today.is_dropped:
        return today
    return replace(today, fields={name: value for name, value in today.fields.items() if name != "enabled"})


def _remembered(before: Proposal | None, present: Present, today: Proposal) -> Proposal:
    """What counts as proposed from now on: a value that a person chose is none, even if it is the same today.

    Else a table that a person had stopped would run again once its source dropped it and took it up again.
    """
    base: Mapping[str, Any] = {} if before is None else before.fields
    fields: dict[str, Any] = {}
    for name in dict.fromkeys((*today.fields, *base)):
        unchanged = _same(present.fields.get(name, ABSENT), base.get(name, ABSENT))
        ours = unchanged and _is_proposed(name, before, present)
        value = (today.fields if ours else base).get(name, ABSENT)
        fields |= {} if isinstance(value, Absent) else {name: value}
    had = None if before is None else before.keys
    keys = today.keys if today.keys and _same(_written(present.keys), _written(had)) else had
    evidence = today.evidence if keys == today.keys or before is None else before.evidence
    return Proposal(table=today.table, keys=keys, fields=fields, evidence=evidence, observed=today.observed)


def _written(keys: tuple[str, ...] | None) -> Any:
    return ABSENT if keys is None else keys


def _fields(before: Proposal | None, present: Present, today: Proposal) -> Iterator[ProposedChange | KeptValue]:
    base: Mapping[str, Any] = {} if before is None else before.fields
    for name in dict.fromkeys((*today.fields, *base)):
        if not _is_proposed(name, before, present):
            continue
        mine, new = present.fields.get(name, ABSENT), today.fields.get(name, ABSENT)
        yield from _step(today, name, (base.get(name, ABSENT), mine, new))


def _is_proposed(name: str, before: Proposal | None, present: Present) -> bool:
    """Not what `defaults` decide for all; and whether a row runs only where it was proposed."""
    return before is not None if name == "enabled" else name not in present.fixed


def _keys(before: Proposal | None, present: Present, today: Proposal) -> Iterator[ProposedChange | KeptValue]:
    mine, new = _written(present.keys), today.keys
    base = ABSENT if before is None else _written(before.keys)
    if not new:
        return  # that nothing was found takes no key away
    if not present.keys_here and mine != new:
        yield KeptValue(
            table=today.table, field="keys", value=mine, proposed=new, evidence=today.evidence.get("keys", "")
        )
        return
    yield from _step(today, "keys", (base, mine, new))


def _step(today: Proposal, name: str, values: tuple[Any, Any, Any]) -> Iterator[ProposedChange | KeptValue]:
    base, mine, new = values
    evidence = today.evidence.get(name, "")
    if _same(mine, new):
        return
    if _same(mine, base):
        yield ProposedChange(table=today.table, field=name, old=mine, new=new, evidence=evidence)
    else:
        yield KeptValue(table=today.table, field=name, value=mine, proposed=new, evidence=evidence)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
