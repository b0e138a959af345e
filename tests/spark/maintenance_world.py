"""Histories with maintenance between their runs: their strategies, and a lake in which an engine runs them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from hypothesis import strategies as st

from airflow_gddl.contract.actions import Erase, HandleErrors, Maintain, Rebuild, Reload, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from spark_jobs.batch.runtime import Observer, silent
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.strategies import Case, Traits, cases, dense
from tests.oracle import Run
from tests.spark.breaking import Break, Breaker

MaintenanceAction = Literal["maintain", "rebuild", "reload", "replay"]
OPTIONS: Mapping[MaintenanceAction, JobOptions] = {
    "maintain": JobOptions(action=Maintain()),
    "rebuild": JobOptions(action=Rebuild()),
    "reload": JobOptions(action=Reload(confirmed=True)),
    "replay": JobOptions(action=HandleErrors(mode="replay")),
}
_BATCH = ("plan", "read", "quarantine", "append", "decide", "tombstones", "replica", "history", "commit")
_REBUILD = ("plan", "append", "tombstones", "replica", "history", "quarantine", "commit")
STEPS: Mapping[MaintenanceAction, Sequence[str]] = {
    "maintain": ("tombstones", "cut", "compact", "vacuum", "log", "leftovers"),
    "rebuild": _REBUILD,
    "reload": (*_REBUILD, "staged", "checked", "swapping"),
    "replay": _BATCH,
}
ERASING = ("remembered", "changes", "before_images", "replica", "history", "tombstones", "errors", "leftovers")
# What was cut and comes again counts as new (docs/repair.md): where changes are cut, there are no copies, and the order
# of arrival decides nothing.
SORTS = {
    "everything": Traits(steps=True, partial=True, forced=True, renames=True, bad_rows=True),
    "cut": Traits(copies=False, partial=True, renames=True, composite=True, tie_breaks=("delete_wins",)),
    "keyless": Traits(copies=False, keyless=True, bad_rows=True, deletes=("hard",)),
}
_PAST = 30.0


@dataclass(frozen=True, kw_only=True)
class Round:
    """What happens at a run.

    Attributes:
        dies: the step after which it breaks off first, if that comes; `then_dies`: the same for the action after it.
        between: all tables are maintained before what broke off is run again.
        loses: a file of the run goes out of the landing folder once it is taken in.
    """

    dies: str
    between: bool
    loses: bool
    then: MaintenanceAction | None
    then_dies: str


@dataclass(frozen=True)
class MaintainedCase:
    """A history and its maintenance.

    Attributes:
        erased_at: number of the run after which a key is erased, `erasing_dies` the step after which that breaks off.
    """

    case: Case
    rounds: tuple[Round, ...]
    erased_at: int
    erasing_dies: str


@st.composite
def histories(draw: st.DrawFn, sort: str) -> MaintainedCase:
    case = draw(cases(dense(SORTS[sort])))
    kept: dict[str, object] = {"tombstone_retention": "9999d"}
    if sort != "everything":
        kept |= {"history": False, "changes_retention": "1s"}
    rounds = tuple(draw(_rounds()) for _ in case.runs)
    at, dies = draw(st.integers(0, len(case.runs) - 1)), draw(st.sampled_from(ERASING))
    return MaintainedCase(replace(case, spec=replace(case.spec, **kept)), rounds, at, dies)


@st.composite
def _rounds(draw: st.DrawFn) -> Round:
    then = draw(st.sampled_from([None, *OPTIONS]))
    return Round(
        dies=draw(st.sampled_from(["", "", *_BATCH])),
        between=draw(st.booleans()),
        loses=draw(st.sampled_from([False, False, True])),
        then=then,
        then_dies="" if then is None else draw(st.sampled_from(["", *STEPS[then]])),
    )


def age(lake: Lake, days: float) -> None:
    """Set the times of all files back by so many days."""
    for path in Path(lake.roots.lake).rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - days * 86400
            os.utime(path, (then, then))


@dataclass
class World:
    """A lake whose jobs alternate between engines.

    Attributes:
        codes: by table, all codes of results that failed, but for those that were to break off.
    """

    ports: Sequence[LocalPort]
    lake: Lake
    codes: dict[str, list[str]] = field(default_factory=dict)
    _jobs: int = 0

    def land(self, case: Case, number: int) -> None:
        """The files of a run; `n` is narrow in some of them, by their names, so that a copy stays a copy."""
        for file in case.runs[number].files:
            narrow = sum(map(ord, file.name)) % 2
            self.lake.land(case.spec, Run((file,)), {**case.types, "n": "int32" if narrow else "int64"})

    def lose(self, case: Case, number: int) -> None:
        """A file of the run, for ever or until it comes again."""
        Path(self.lake.layout(case.spec).landing, case.runs[number].files[0].name).unlink()

    def load(self, chosen: Sequence[Case], dies: Mapping[str, str] | None = None) -> None:
        self._play(chosen, JobOptions(), dies or {})

    def maintain(self, chosen: Sequence[Case], dies: Mapping[str, str] | None = None) -> None:
        """As if some days had gone by since the one before."""
        age(self.lake, 4)
        self._play(chosen, OPTIONS["maintain"], dies or {}, days=0)

    def keep(self, chosen: Sequence[Case], what: MaintenanceAction, dies: Mapping[str, str] | None = None) -> None:
        if what == "maintain":
            self.maintain(chosen, dies)
        else:
            self._play(chosen, OPTIONS[what], dies or {})

    def erase(self, case: Case, key: Mapping[str, str], dies: str = "") -> None:
        self._play([case], JobOptions(action=Erase(key=dict(key))), {case.spec.table: dies})

    def verify(self, chosen: Sequence[Case]) -> None:
        self._play(chosen, JobOptions(action=Verify()), {})

    def _play(
        self, chosen: Sequence[Case], options: JobOptions, dies: Mapping[str, str], days: float = _PAST
    ) -> dict[str, JobResult]:
        port = self.ports[self._jobs % len(self.ports)]
        self._jobs += 1
        breaks = {table: Break(step) for table, step in dies.items() if step}
        observe: Observer = Breaker(breaks) if breaks else silent
        clock = lambda: datetime.now(UTC) - timedelta(days=days)  # noqa: E731 - a clock, here alone
        stood = LocalPort(port.name)
        stood.runtime = replace(port.runtime, clock=clock)
        job = self.lake.job([case.spec for case in chosen], options, run_id=f"job-{self._jobs}")
        found = self.lake.results(stood, job, observe)
        for table, result in found.items():
            if result.error is not None and "BrokenOffError" not in str(result.error):
                self.codes.setdefault(table, []).append(f"{options.action} {result.error}")
        return found
