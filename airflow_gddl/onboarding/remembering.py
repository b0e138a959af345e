"""Stores the last proposals: `onboarding/<source>.json` in the metadata folder, committed with it. Pure.

It distinguishes a user's value from an outdated proposal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.onboarding.rules import Observed, Proposal

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
    remedy = "restore the file; without it, every differing value counts as edited by a user"
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
