"""Compares what was seen after a run with what the scenario and the oracle say."""

from __future__ import annotations

from airflow_gddl.contract.codec import plain as contract_plain
from airflow_gddl.contract.result import JobResult
from tests.oracle import Counts, replay
from tests.scenarios.comparing import META, assert_errors, assert_rows, part_of, plain
from tests.scenarios.model import Expected, Scenario
from tests.scenarios.playing import Seen
from tests.scenarios.staging import oracle_run


def assert_run(scenario: Scenario, number: int, seen: Seen) -> None:
    """Everything the scenario says of one run, and the accounting where the oracle knows it."""
    expected = scenario.expected(number)
    status = "succeeded" if scenario.runs[number].files else seen.result.status
    assert seen.result.status == expected.result.get("status", status), seen.result.error
    assert_tables(expected, seen)
    assert_result(expected, seen.result)
    assert_counts(scenario, number, seen.result)


def assert_tables(expected: Expected, seen: Seen) -> None:
    if expected.replica is not None:
        assert_rows("replica", expected.replica, seen.rows["replica"], expected)
    if isinstance(expected.changes, int):
        assert len(seen.rows["changes"]) == expected.changes
    elif expected.changes is not None:
        assert_rows("change table", expected.changes, seen.rows["changes"], expected)
    if expected.history is not None:
        assert_rows("history", expected.history, seen.rows["history"], expected)
    values = [str(plain(value)) for row in seen.rows.get("replica", ()) for value in row.values()]
    assert [text for text in expected.replica_has if not any(text in value for value in values)] == []
    reported = str(seen.rows.get("changes", ""))
    assert [text for text in expected.changes_lack if text in reported] == []
    if expected.errors is not None:
        assert_errors(expected.errors, seen.rows["errors"])
    if expected.columns is not None:
        assert tuple(name for name in seen.columns if name != META) == expected.columns
    if expected.types is not None:
        assert {name: seen.columns.get(name) for name in expected.types} == dict(expected.types)


def assert_result(expected: Expected, result: JobResult) -> None:
    actual = contract_plain(result)
    for name, wanted in expected.result.items():
        assert part_of(wanted, actual[name]), f"{name}: {actual[name]!r} is not {wanted!r}"
    for text in expected.result_has:
        assert result.error is not None, f"no error to hold {text!r}"
        assert text in result.error.message
    if expected.warnings is not None:
        assert sorted(w.code for w in result.warnings) == sorted(w.code for w in expected.warnings), result.warnings
        counts = {w.code: w.count for w in result.warnings}
        wanted_counts = {w.code: w.count for w in expected.warnings if w.count is not None}
        assert {code: counts[code] for code in wanted_counts} == wanted_counts


def assert_counts(scenario: Scenario, number: int, result: JobResult) -> None:
    """Rows of files that can't be read are in no count, so that runs with such files are left to the scenario.

    Of a load file so are later runs, which count what has waited for it.
    """
    bad = [(at, file) for at, run in enumerate(scenario.runs[: number + 1]) for file in run.files
           if file.raw is not None or file.cut]  # fmt: skip
    damaged = any(at == number or file.kind == "load" for at, file in bad)
    if scenario.not_modelled or damaged or not scenario.runs[number].files:
        return
    outcome = replay(scenario.spec(), [oracle_run(scenario, run) for run in scenario.runs[: number + 1]])
    counts = Counts(result.rows_read, result.changes_written, result.redelivered, result.quarantined)
    assert counts == outcome.counts[number]
    if scenario.spec().size != "one_file" and result.mode != "refresh":
        assert result.late_ignored == outcome.late[number]
