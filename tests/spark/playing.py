"""Many histories side by side as tables of one lake: a job for each round, after which the oracle judges each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.strategies import Case
from tests.oracle import replay
from tests.spark.table_lines import by_engine, by_oracle, counts_of, differences, readable

Wrong = dict[str, list[str]]
"""Table to what is wrong with it."""


def named(cases: Sequence[Case]) -> list[Case]:
    """Each its own table."""
    return [replace(case, spec=replace(case.spec, table=f"s.t{n:03d}")) for n, case in enumerate(cases)]


@dataclass
class Stage:
    """Attributes:
    wrong: what is wrong so far; a table found wrong is played no further.
    """

    port: LocalPort
    lake: Lake
    cases: Sequence[Case]
    wrong: Wrong = field(default_factory=dict)

    def playing(self, number: int) -> list[Case]:
        """Cases that have a run of this number and are right so far."""
        return [c for c in self.cases if number < len(c.runs) and c.spec.table not in self.wrong]

    def land(self, number: int) -> list[Case]:
        active = self.playing(number)
        for case in active:
            self.lake.land(case.spec, case.runs[number], case.types)
        return active

    def judge(self, case: Case, number: int, result: JobResult | None) -> None:
        """Compare the table with the oracle, and the counts of a result with it."""
        outcome = replay(case.spec, case.runs[: number + 1])
        found = differences(by_oracle(outcome, case.spec), by_engine(self.lake.layout(case.spec)))
        if result is not None and counts_of(result) != outcome.counts[number]:
            found.append(f"counts {counts_of(result)}, not {outcome.counts[number]}")
        self.blame(case, f"after run {number}", found)

    def blame(self, case: Case, when: str, found: Sequence[str]) -> None:
        if found:
            self.wrong.setdefault(case.spec.table, []).extend([f"{when}:", *(f"  {line}" for line in found)])

    def blame_failures(self, when: str, results: Mapping[str, JobResult]) -> None:
        for case in self.cases:
            result = results.get(case.spec.table)
            if result is not None and result.status == "failed":
                self.blame(case, when, [str(result.error)])

    def report(self) -> str:
        """Empty when all is right."""
        cases = {case.spec.table: case for case in self.cases}
        return "\n\n".join("\n".join([readable(cases[t]), *lines]) for t, lines in self.wrong.items())


def play(stage: Stage) -> None:
    """All runs of all cases, each round judged."""
    for number in range(max(len(case.runs) for case in stage.cases)):
        active = stage.land(number)
        job = stage.lake.job([case.spec for case in active], run_id=f"run-{number}")
        results = stage.lake.results(stage.port, job)
        stage.blame_failures(f"in run {number}", results)
        for case in active:
            if case.spec.table not in stage.wrong:
                stage.judge(case, number, results[case.spec.table])


def verify(stage: Stage) -> None:
    """The engine's own check agrees: each replica is the fold of its change table, also where a sweep is held."""
    right = [case for case in stage.cases if case.spec.table not in stage.wrong]
    job = stage.lake.job([case.spec for case in right], JobOptions(action=Verify()))
    results = stage.lake.results(stage.port, job)
    for case in right:
        result = results[case.spec.table]
        verdict = ("failed", "held") if stage.lake.ledger(case.spec).state.held else ("succeeded", "equal")
        if (result.status, result.details["verdict"]) != verdict:
            stage.blame(case, "verify", [f"{result.status}: {result.error} {result.details}"])
