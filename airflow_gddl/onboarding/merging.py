"""A new proposal beside the last one and the rows that are there. Pure.

Rows belong to people: a table without a row gets one, and what a row should have instead is shown once. A value that
differs from a proposal that was shown before is kept and listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.onboarding.rules import Observed, Proposal


@dataclass(frozen=True)
class Absent:
    """Placeholder for a value that is not set; its default applies."""

    def __repr__(self) -> str:
        return "(not set)"


ABSENT = Absent()


@dataclass(frozen=True, kw_only=True)
class Present:
    """A table's current row and keys in the files.

    Attributes:
        fields: the row's own, nested ones by path (`options.op_column`); `table` and `keys` not among them.
        keys: None: none are written.
        fixed: fields that `defaults` set: set for all tables.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] | None = None
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ProposedChange:
    """A value that a row should have or lose. `field` is a path, or `keys`; `old` and `new` may be `ABSENT`."""

    table: str
    field: str
    old: Any
    new: Any
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class KeptValue:
    """A value that differs from a proposal that was shown before."""

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
        named: existing keys in a keys file, which are kept. None: none.
    """

    proposal: Proposal
    fixed: frozenset[str] = frozenset()
    named: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Merged:
    """Rows to write, values to change by hand, values that are kept, and the proposals to store for each table."""

    rows: tuple[NewRow, ...] = ()
    changes: tuple[ProposedChange, ...] = ()
    kept: tuple[KeptValue, ...] = ()
    remembered: tuple[Proposal, ...] = ()


def merge(before: Proposal | None, present: Present | NewRow, today: Proposal) -> Merged:
    """One table.

    Args:
        before: None: never proposed.
        present: what the files have; a `NewRow` where they have no row of it.
    """
    if isinstance(present, NewRow) and before is None:
        return _new(present, today)
    if isinstance(present, NewRow):
        kept_out = KeptValue(table=today.table, field="table", value=ABSENT, proposed=today.table)
        return Merged(kept=(kept_out,), remembered=() if before is None else (before,))
    if present.keys:
        today = _keyed(today)
    steps = (*_fields(before, present, today), *_keys(before, present, today))
    changes = tuple(step for step in steps if isinstance(step, ProposedChange))
    return Merged(
        changes=changes, kept=tuple(step for step in steps if isinstance(step, KeptValue)), remembered=(today,)
    )


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
        remembered=(today,),
    )


def _keyed(today: Proposal) -> Proposal:
    """A table with keys set by a user is not disabled for missing keys."""
    if today.keys or today.is_dropped:
        return today
    return replace(today, fields={name: value for name, value in today.fields.items() if name != "enabled"})


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
    """Without fields set by `defaults`; `enabled` only where it was proposed."""
    return before is not None if name == "enabled" else name not in present.fixed


def _keys(before: Proposal | None, present: Present, today: Proposal) -> Iterator[ProposedChange | KeptValue]:
    mine, new = _written(present.keys), today.keys
    base = ABSENT if before is None else _written(before.keys)
    if new:  # a missing key does not remove an existing one
        yield from _step(today, "keys", (base, mine, new))


def _step(today: Proposal, name: str, values: tuple[Any, Any, Any]) -> Iterator[ProposedChange | KeptValue]:
    base, mine, new = values
    evidence = today.evidence.get(name, "")
    if _same(mine, new):
        return
    if _same(new, base):
        yield KeptValue(table=today.table, field=name, value=mine, proposed=new, evidence=evidence)
    else:
        yield ProposedChange(table=today.table, field=name, old=mine, new=new, evidence=evidence)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


FOLDER = "onboarding"


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A proposal for storage: with evidence only of the keys, since other evidence changes with each run."""

    keys: tuple[str, ...] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    key_evidence: str = ""
    observed: Observed | None = None


@dataclass(frozen=True, kw_only=True)
class _Document:
    tables: Mapping[str, _Entry] = field(default_factory=dict)
    version: int = 1


def parse(text: str, where: str) -> dict[str, Proposal]:
    """Proposals by table; empty for an empty text.

    Raises:
        MetadataError: `ONBOARD_MEMORY_INVALID`.
    """
    if not text.strip():
        return {}
    remedy = "restore the file; without it, every value that differs is shown again"
    try:
        document = decode(_Document, json.loads(text))
    except (json.JSONDecodeError, FatalError) as error:
        raise MetadataError(
            "ONBOARD_MEMORY_INVALID", f"not in the written format: {error}", where=where, remedy=remedy
        ) from error
    return {table: _proposal(table, entry) for table, entry in document.tables.items()}


def render(proposals: Mapping[str, Proposal]) -> str:
    """One line for each table, sorted, for small diffs."""
    lines = [f"{_json(table)}: {_json(_plain(proposals[table]))}" for table in sorted(proposals)]
    return '{"version": 1, "tables": {\n' + ",\n".join(lines) + "\n}}\n"


def remembered(before: Mapping[str, Proposal], today: Iterable[Proposal]) -> dict[str, Proposal]:
    """Proposals to store: new ones over earlier ones.

    An entry that differs only by its change counter is kept: otherwise every run would change the file.
    """
    kept = dict(before)
    for proposal in today:
        table, old = proposal.table, before.get(proposal.table)
        if (
            old is None
            or (old.keys, dict(old.fields)) != (proposal.keys, dict(proposal.fields))
            or (old.observed is None and proposal.observed is not None)
        ):
            kept[table] = proposal
    return kept


def _proposal(table: str, entry: _Entry) -> Proposal:
    evidence = {"keys": entry.key_evidence} if entry.key_evidence else {}
    return Proposal(
        table=table, keys=entry.keys, fields=_frozen(entry.fields), evidence=evidence, observed=entry.observed
    )


def _frozen(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples, as rules make them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _plain(proposal: Proposal) -> dict[str, Any]:
    entry = _Entry(
        keys=proposal.keys,
        fields=proposal.fields,
        key_evidence=proposal.evidence.get("keys", ""),
        observed=proposal.observed,
    )
    return {
        name: value
        for name, value in plain(entry).items()
        if value not in ({}, "") and (value is not None or name == "keys")
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
