"""An erasure does not wait for a batch that stopped, and a file that was dismissed for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Erase, HandleErrors
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import Expectation, SchemaGate
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.stores import Storage
from spark_jobs.batch.totals import TableOutcome
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of

SPEC = spec_of()


def fault(lake: Lake, spec: TableSpec, **options: Any) -> str:
    outcome = lake.run(spec, options_of(**options))
    assert isinstance(outcome, TableOutcome)
    return outcome.result.error.code if outcome.result.error is not None else ""


# --- an erasure ---


@pytest.mark.parametrize("fields", [
    {"expect": {"short": Expectation(rule="length(v) < 9", on="fail")}},
    {"on_bad_row": "fail"},
    {"schema": SchemaGate(require=("w",))},
])  # fmt: skip
def test_an_erasure_does_not_wait_for_a_batch_that_stopped(fields: dict[str, Any], tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), with_expressions(replace(SPEC, **fields))
    lake.load(SPEC)
    lake.done(SPEC)
    lake.change(spec, 1, [("U", 1, "far too long"), ("X", 2, "b"), ("I", 7, "new")])
    assert fault(lake, spec) in ("EXPECTATION_FAILED", "BAD_ROWS", "SCHEMA_INCOMPATIBLE")
    lake.done(spec, JobOptions(action=Erase(key={"id": "1"})))
    assert lake.replica(SPEC) == {0: "load 0", 2: "load 2"}
    lake.done(SPEC)
    assert lake.replica(SPEC) == {0: "load 0", 2: "load 2", 7: "new"}, "the batch came, and the key did not come back"


# --- a dismissed file ---


def test_a_dismissed_file_is_not_replayed(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    lake.done(SPEC)
    lake.change(SPEC, 1, [("I", 7, "dismissed")])
    lake.change(SPEC, 2, [("I", 8, "left")])
    first, second = sorted(Path(lake.layout(SPEC).landing).glob("2024*"))
    whole = {path: path.read_bytes() for path in (first, second)}
    for path in whole:
        path.write_bytes(b"PAR1 cut")
    lake.done(SPEC)
    asked = options_of("errors_dismiss", codes=("FILE_UNREADABLE",), reason="gone", source_files=(str(first),))
    assert lake.done(SPEC, asked).details["dismissed"] == 1
    result = lake.done(SPEC, JobOptions(action=HandleErrors(mode="replay")))
    assert result.files == 1, "the other one is read again, in vain"
    for path, data in whole.items():
        path.write_bytes(data)
    lake.done(SPEC)
    assert {7, 8} < lake.replica(SPEC).keys(), "both were written again"


def test_a_dismissed_file_that_could_be_read_now_is_not_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a change of the row, or of its reader."""
    lake = Lake(tmp_path)
    lake.load(SPEC)
    lake.done(SPEC)
    lake.change(SPEC, 1, [("I", 7, "dismissed")])
    lake.change(SPEC, 2, [("I", 8, "left")])
    opened = Storage.open_input

    def damaged(self: Storage, path: str) -> Any:
        if "/20240101-" in path:
            raise ValueError("damaged")
        return opened(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "open_input", damaged)
        lake.done(SPEC)
    first = str(min(Path(lake.layout(SPEC).landing).glob("2024*")))
    asked = options_of("errors_dismiss", codes=("FILE_UNREADABLE",), reason="gone", source_files=(first,))
    lake.done(SPEC, asked)
    lake.done(SPEC, JobOptions(action=HandleErrors(mode="replay")))
    assert lake.replica(SPEC) == {0: "load 0", 1: "load 1", 2: "load 2", 8: "left"}
