"""Shows a plan of `gddl onboard`: unified diffs in colour, kept values, open decisions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from airflow_gddl.cli.screen import Cell, Screen
from airflow_gddl.cli.text import count, counted
from airflow_gddl.onboarding.facts import Notice
from airflow_gddl.onboarding.merging import Absent, KeptValue
from airflow_gddl.onboarding.plan import OnboardingPlan
from airflow_gddl.onboarding.remembering import FOLDER
from airflow_gddl.onboarding.writing import FileChange
from airflow_gddl.onboarding.yaml_values import flow

_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))
_MOST = 20


def show_plan(screen: Screen, files: Sequence[FileChange], plan: OnboardingPlan) -> None:
    """The diff on standard output, kept values and open decisions on standard error."""
    for file in files:
        if file.name.startswith(f"{FOLDER}/"):
            screen.say(f"and {file.name}: what was proposed, for the next run", "bold")
            continue
        for line in diff(file):
            style = next((style for sign, style in _STYLES if line.startswith(sign)), "")
            # Not wrapped: a wrapped part without its sign would be read as another line.
            screen.spans([Cell(line.rstrip("\r\n"), style)])
    if not files:
        screen.say("nothing to change", "green")
    _show_kept(screen, plan.merged.kept)
    _show_notices(screen, plan.notices)
    merged = plan.merged
    parts = {"new": merged.rows, "dropped": plan.dropped, "values changed": merged.changes, "values kept": merged.kept}
    screen.warn(", ".join(f"{count(len(found))} {what}" for what, found in parts.items()), "bold")


def diff(file: FileChange) -> Iterator[str]:
    """Lines of a unified diff."""
    old = "/dev/null" if file.old is None else f"a/{file.name}"
    before = [] if file.old is None else file.old.splitlines(keepends=True)
    for line in difflib.unified_diff(before, file.new.splitlines(keepends=True), old, f"b/{file.name}"):
        yield line if line.endswith("\n") else f"{line}\n"


def shown(value: Any) -> str:
    """A value of a file; `(not set)` where none is written."""
    return repr(value) if isinstance(value, Absent) else flow(value)


def _show_kept(screen: Screen, kept: Sequence[KeptValue]) -> None:
    if kept:
        screen.warn("kept as edited:", "bold")
        rows = [[one.table, one.field, shown(one.value), shown(one.proposed), one.evidence] for one in kept]
        screen.table(("table", "field", "kept", "proposed", "because"), rows, error=True)


def _show_notices(screen: Screen, notices: Sequence[Notice]) -> None:
    by_code: dict[str, list[Notice]] = {}
    for notice in notices:
        by_code.setdefault(notice.code, []).append(notice)
    for code, found in sorted(by_code.items()):
        screen.warn(
            f"[{code}] {counted(len(found), 'table')}{'. Remedy: ' if found[0].remedy else ''}{found[0].remedy}",
            "yellow",
        )
        rows = [[Cell(one.table), Cell(one.message)] for one in found[:_MOST]]
        more = [["…", f"and {count(len(found) - _MOST)} more; --json lists all"]] if len(found) > _MOST else []
        screen.table(("table", "what"), [*rows, *more], error=True)
