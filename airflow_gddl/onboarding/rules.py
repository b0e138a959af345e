"""Facts to proposals: size, priority, schedule and keys, each with its evidence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.spec import DEFAULT_TIERS, TierSpec
from airflow_gddl.onboarding.facts import Activity, KeyFact, TableFacts

DAY = 86_400.0
BUSY = 1_000_000
"""Changes a day from which on a table is loaded four times an hour, before others."""
QUIET_DAYS = 7
"""Without a change for so long, once a day is enough."""
SHRUNK = 0.5
"""A table keeps its tier, and its rhythm, until it is below this part of the bound; else it would go to and fro."""
_RHYTHMS = {"busy": ("high", "*/15 * * * *"), "usual": ("normal", "@hourly"), "quiet": ("low", "@daily")}
_ALWAYS_TOLD = frozenset({"size", "priority", "schedule", "enabled"})
_ORDER = ("small", "medium", "large")
_UNITS = ((1024**4, "TB"), (1024**3, "GB"), (1024**2, "MB"), (1024, "kB"))


@dataclass(frozen=True, kw_only=True)
class Observed:
    """How much a table had changed when it was looked at: what a later look is compared with."""

    counter: int
    at: float


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a row should say. Fields that have their default are left out.

    Attributes:
        keys: empty: none were found, and the row is not enabled until a person has decided. Null, of what is remembered
            alone: none were ever proposed.
        fields: by path (`size`, `options.op_column`), in the order in which a row shows them.
        evidence: in words, by field; `keys` among them.
        is_dropped: the source has no such table any more.
    """

    table: str
    keys: tuple[str, ...] | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)
    observed: Observed | None = None
    is_dropped: bool = False


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Up to how many bytes a table is small, and medium; beyond, it is large."""

    small: int
    medium: int

    @classmethod
    def of(cls, tiers: Mapping[str, TierSpec]) -> Bounds:
        """What the tiers themselves take without Spark."""
        sizes = (tiers.get(name, DEFAULT_TIERS[name]).delta_rs_max_bytes for name in ("small", "medium"))
        small, medium = sizes
        return cls(small=small, medium=max(small, medium))


def propose(facts: TableFacts, bounds: Bounds, before: Proposal | None = None) -> Proposal:
    """What the row of a table should say.

    Args:
        before: what was proposed last time: it keeps a table from going to and fro between two tiers, and tells how
            much has changed since.
    """
    fields: dict[str, Any] = {}
    evidence = dict(facts.evidence)
    size = _size(facts.size_bytes, bounds, before)
    fields |= {"size": size} if size != "small" else {}
    evidence["size"] = _extent(facts)
    priority, schedule = _rhythm(facts.activity, before, evidence)
    fields |= {"priority": priority} if priority != "normal" else {}
    fields |= {"schedule": schedule} if schedule != "@hourly" else {}
    fields |= _told_before(before) if facts.fields is None else facts.fields
    key = kept_key(facts.key, before)
    if key is None:
        fields["enabled"] = False
        evidence["keys"] = evidence["enabled"] = "no key was found"
    else:
        evidence["keys"] = key.evidence
    keys = () if key is None else key.columns
    observed = _observed(facts.activity, before)
    return Proposal(table=facts.table, keys=keys, fields=fields, evidence=evidence, observed=observed)


def kept_key(found: KeyFact | None, before: Proposal | None) -> KeyFact | None:
    """A key that was proposed is not given up for none, nor one that was declared for one that was only measured."""
    if before is None or not before.keys:
        return found
    had = KeyFact(columns=before.keys, evidence=before.evidence.get("keys", ""))
    return had if found is None or (found.is_measured and not had.is_measured) else found


def _told_before(before: Proposal | None) -> dict[str, Any]:
    """What change files told when there were some."""
    if before is None:
        return {}
    return {name: value for name, value in before.fields.items() if name not in _ALWAYS_TOLD}


def dropped(before: Proposal) -> Proposal:
    """What the row of a table should say that its source has no more: it stops, and what it has is kept."""
    evidence = {**before.evidence, "enabled": "the source has no such table any more"}
    return Proposal(
        table=before.table,
        keys=before.keys,
        fields={**before.fields, "enabled": False},
        evidence=evidence,
        observed=before.observed,
        is_dropped=True,
    )


def _size(size: int | None, bounds: Bounds, before: Proposal | None) -> str:
    if size is None:
        return "small" if before is None else str(before.fields.get("size", "small"))
    fits = "small" if size <= bounds.small else "medium" if size <= bounds.medium else "large"
    had = "small" if before is None else str(before.fields.get("size", "small"))
    if had not in _ORDER or _ORDER.index(fits) >= _ORDER.index(had):
        return fits
    limit = bounds.small if fits == "small" else bounds.medium
    return fits if size <= limit * SHRUNK else had


def _extent(facts: TableFacts) -> str:
    rows = "rows not known" if facts.rows is None else f"{facts.rows:,} rows"
    return rows if facts.size_bytes is None else f"{rows}, {in_bytes(facts.size_bytes)}"


def in_bytes(size: int) -> str:
    """`1.2 GB`, counted in powers of 1024."""
    unit, name = next(((unit, name) for unit, name in _UNITS if size >= unit), (1, "bytes"))
    return f"{size} bytes" if unit == 1 else f"{size / unit:.1f} {name}"


def _rhythm(activity: Activity | None, before: Proposal | None, evidence: dict[str, str]) -> tuple[str, str]:
    """Priority and schedule; those of the last proposal while nothing new can be told."""
    window = _window(activity, before)
    if window is None:
        fields: Mapping[str, Any] = {} if before is None else before.fields
        return str(fields.get("priority", "normal")), str(fields.get("schedule", "@hourly"))
    changes, days = window
    was_busy = before is not None and before.fields.get("schedule") == _RHYTHMS["busy"][1]
    is_busy = changes / days >= BUSY * (SHRUNK if was_busy else 1)
    kind = "busy" if is_busy else "quiet" if not changes and days >= QUIET_DAYS else "usual"
    evidence["schedule"] = evidence["priority"] = f"{changes:,} changes in {days:.1f} days"
    return _RHYTHMS[kind]


def _window(activity: Activity | None, before: Proposal | None) -> tuple[int, float] | None:
    """Changes and days of the longest time that can be told, a day at least; null: none."""
    if activity is None:
        return None
    known = None if before is None else before.observed
    if known is not None and activity.counter is not None and activity.counter >= known.counter:
        days = (activity.until - known.at) / DAY
        return (activity.counter - known.counter, days) if days >= 1 else None
    if activity.since is None or activity.until - activity.since < DAY:
        return None
    return activity.changes, (activity.until - activity.since) / DAY


def _observed(activity: Activity | None, before: Proposal | None) -> Observed | None:
    if activity is None or activity.counter is None:
        return None if before is None else before.observed
    return Observed(counter=activity.counter, at=activity.until)
