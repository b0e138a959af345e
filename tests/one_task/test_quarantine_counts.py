"""What is in quarantine is counted in one place: each run and erasure says what it left, and the state follows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import HandleErrors, Rebuild
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.contract.table_spec import Expectation
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.runtime.state.table_runs import TableRecord, merged
from airflow_gddl.runtime.state.table_status import judge
from spark_jobs.batch.runtime import Clock
from spark_jobs.batch.totals import TableOutcome
from tests.harness.asked import options_of
from tests.harness.lake import TIER, Lake, spec_of
from tests.harness.landing import write
from tests.one_task.commands import gddl
from tests.spark.children import killed_child
from tests.unit.test_table_status import ROW

SPEC = spec_of()
TABLE = replace(ROW, table=SPEC.table, freshness=None)


def judged(record: TableRecord) -> tuple[str, ...]:
    return judge(TABLE, record, 0.0).attention


def project(folder: Path) -> None:
    """Metadata of the table."""
    (folder / "metadata/tables").mkdir(parents=True)
    settings = "landing: ../landing\nlake: ../lake\n"
    (folder / "metadata/gddl.yaml").write_text(settings)
    (folder / "metadata/tables/t.yaml").write_text("tables: [{table: s.t, keys: [id], sequence_by: [seq]}]\n")


class Watched:
    """A small table, and the record of its runs as `gddl status` has it."""

    def __init__(self, root: Path) -> None:
        self.lake, self.record = Lake(root), TableRecord()

    def run(self, **options: object) -> JobResult:
        result = self.lake.done(SPEC, options_of(**options))  # type: ignore[arg-type]  # options by name
        self.record = self.record.after(result, 0.0)
        listed = self.lake.done(SPEC, JobOptions(action=HandleErrors()))
        assert self.record.quarantined == listed.details["unresolved"], "status and list agree"
        return result

    def failed(self) -> str:
        """The code of a run that has to fail."""
        result = self.lake.result(SPEC)
        self.record = self.record.after(result, 0.0)
        assert result.error is not None
        return result.error.code

    @property
    def attention(self) -> tuple[str, ...]:
        return judged(self.record)

    def damaged(self, name: str = "20240101-000000009.parquet") -> None:
        Path(self.lake.layout(SPEC).landing, name).write_bytes(b"PAR1 cut")


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_half_of_the_rows_in_quarantine_need_attention_until_they_are_settled(watched: Watched) -> None:
    watched.lake.load(SPEC, 4)
    watched.lake.change(SPEC, 1, [("I", 11, "a"), ("X", 12, "b"), ("X", 13, "c"), ("X", 14, "d")])
    assert watched.run().quarantined == 3
    assert watched.attention == ("QUARANTINE_RATE",)
    watched.lake.change(SPEC, 2, [("I", 21, "a"), ("I", 22, "b")])
    watched.run()
    assert watched.attention == ("QUARANTINE_RATE",), "a good run does not settle them"
    watched.run(action="erase", key={"id": "12"})
    assert watched.record.quarantined == 2
    watched.run(action="errors_replay")
    assert watched.record.quarantined == 2, "refused again"
    watched.lake.change(SPEC, 1, [("I", 11, "a"), ("I", 13, "c"), ("I", 14, "d")])
    watched.run()
    assert (watched.record.quarantined, watched.attention) == (0, ())


def test_a_file_that_a_failed_run_could_not_read_needs_attention(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.lake = replace(watched.lake, tier=replace(TIER, max_files_per_batch=1))
    watched.lake.load(SPEC, 400)
    watched.damaged()
    refused = pa.table({"Op": ["I"], "seq": [b"1"], "id": pa.array([1], pa.int32()), "v": ["bytes"]})
    path = write(watched.lake.landing(SPEC), "20240102-000000001.parquet", refused)
    assert watched.failed() == "SEQUENCE_TYPE"
    assert (watched.record.quarantined, watched.attention) == (1, ("FILE_UNREADABLE",))
    path.unlink()
    watched.run()
    assert watched.attention == ("FILE_UNREADABLE",), "the next run had nothing to do"


@pytest.mark.parametrize(
    ("asked", "step", "occurrence", "then"),
    [
        ({"action": "reload", "landed_since": "2020-01-01"}, "quarantine", 1, "run"),
        ({"action": "errors_replay"}, "commit", 2, "run"),
        ({"action": "errors_replay"}, "commit", 1, "rebuild"),
    ],
)
def test_what_a_dropped_batch_has_resolved_is_in_quarantine_again(
    asked: dict[str, str], step: str, occurrence: int, then: str, watched: Watched
) -> None:
    """Its files don't wait, so that no later batch reads them again; a rebuild drops the changes of a replay, too."""
    watched.lake.load(SPEC, 4)
    watched.lake.change(SPEC, 1, [("I", 11, "a"), ("X", 12, "b")])
    watched.damaged()
    short = replace(SPEC, expect={"short": Expectation(rule="v is null or v = 'a'")})
    watched.lake.done(with_expressions(short))
    before = watched.lake.done(SPEC, JobOptions(action=HandleErrors())).details["unresolved"]
    job = watched.lake.job([SPEC], options_of(**asked), run_id="dies")
    assert killed_child(job, step, occurrence).status == -9
    watched.lake.done(SPEC, options_of(action=then))
    left = watched.lake.done(SPEC, JobOptions(action=HandleErrors())).details
    assert left["unresolved"] + len(watched.lake.replica(SPEC)) == before + 1, left["codes"]
    assert {"FILE_UNREADABLE", "OP_UNKNOWN"} <= {one["code"] for one in left["codes"]}


def test_a_dismissal_ends_the_attention_and_is_on_record(watched: Watched) -> None:
    watched.lake.load(SPEC, 4)
    watched.lake.change(SPEC, 1, [("I", 11, "a"), ("X", 12, "b"), ("X", 13, "c")])
    watched.damaged()
    watched.run()
    assert set(watched.attention) == {"FILE_UNREADABLE", "QUARANTINE_RATE"}
    watched.run(action="errors_dismiss", codes=("OP_UNKNOWN",), reason="no longer sent")
    assert (watched.record.quarantined, watched.attention) == (1, ("FILE_UNREADABLE",))
    watched.run(action="errors_dismiss", codes=("FILE_UNREADABLE",), reason="cut off, and gone at the source")
    assert (watched.record.quarantined, watched.attention) == (0, ())
    records = list(Path(watched.lake.layout(SPEC).runs).rglob("*.errors_dismiss.json"))
    assert sorted(json.loads(one.read_text())["details"]["reason"] for one in records) == [
        "cut off, and gone at the source",
        "no longer sent",
    ]
    watched.run(action="reload", confirmed=True)
    assert watched.record.quarantined == 3, "a reload reads the files again"


@pytest.mark.parametrize("missing", ["codes", "reason"])
def test_a_dismissal_without_a_code_or_reason_is_refused(missing: str, watched: Watched) -> None:
    watched.lake.load(SPEC, 4)
    watched.lake.change(SPEC, 1, [("X", 12, "b")])
    watched.run()
    asked = {"action": "errors_dismiss", "codes": ("OP_UNKNOWN",), "reason": "gone", missing: ()}
    asked["reason"] = asked["reason"] or " "
    outcome = watched.lake.run(SPEC, options_of(**asked))  # type: ignore[arg-type]  # options by name
    assert isinstance(outcome, TableOutcome)
    assert outcome.result.error is not None
    assert outcome.result.error.code == "SPEC_INVALID"
    assert watched.lake.done(SPEC, JobOptions(action=HandleErrors())).details["unresolved"] == 1


def test_an_unread_file_needs_attention_until_it_is_read(watched: Watched) -> None:
    watched.lake.load(SPEC, 400)
    watched.damaged()
    watched.run()
    watched.lake.change(SPEC, 2, [("I", 1021, "a")])
    watched.run()
    assert watched.attention == ("FILE_UNREADABLE",), "the run after it had nothing to say of it"
    watched.run(action="rebuild")
    assert (watched.record.quarantined, watched.attention) == (1, ("FILE_UNREADABLE",))
    rows = pa.table({"Op": ["I"], "seq": [900], "id": pa.array([5000], pa.int32()), "v": ["x"]})
    write(Path(watched.lake.layout(SPEC).landing), "20240101-000000009.parquet", rows)
    watched.run()
    assert (watched.record.quarantined, watched.attention) == (0, ())


def test_the_newest_count_holds_whichever_writer_had_it(watched: Watched) -> None:
    watched.lake.load(SPEC, 4)
    watched.lake.change(SPEC, 1, [("X", 12, "b")])
    watched.run()
    before = watched.record
    watched.run(action="erase", key={"id": "12"})
    assert merged(before, watched.record).quarantined == merged(watched.record, before).quarantined == 0


def test_rows_and_files_are_summed_by_code_and_the_rows_name_their_keys(tmp_path: Path) -> None:
    lake, clocks = Lake(tmp_path), [f"2024-01-0{day}T00:00:00.000000Z" for day in (2, 3, 4)]
    lake.load(SPEC)
    lake.done(SPEC, clock=_at(clocks[0]))
    lake.change(SPEC, 1, [("X", 12, "b"), ("X", 13, "c"), ("I", None, "d")])
    Path(lake.layout(SPEC).landing, "20240101-000000009.parquet").write_bytes(b"PAR1 cut")
    lake.done(SPEC, clock=_at(clocks[1]))
    lake.change(SPEC, 2, [("Y", 14, "e")])
    lake.done(SPEC, clock=_at(clocks[2]))
    listed = lake.done(SPEC, JobOptions(action=HandleErrors(limit=2)))
    found = {
        one["code"]: (one["rows"], one["files"], one["first"][:10], one["last"][:10]) for one in listed.details["codes"]
    }
    assert found == {
        "OP_UNKNOWN": (3, 2, "2024-01-03", "2024-01-04"),
        "KEY_NULL": (1, 1, "2024-01-03", "2024-01-03"),
        "FILE_UNREADABLE": (1, 1, "2024-01-03", "2024-01-03"),
    }
    assert (listed.details["codes"][0]["code"], listed.details["unresolved"], len(listed.details["rows"])) == (
        "OP_UNKNOWN", 5, 2,
    )  # fmt: skip
    chosen = lake.done(SPEC, JobOptions(action=HandleErrors(codes=("OP_UNKNOWN",)))).details
    assert [(next(iter(row)), row["key"], row["code"]) for row in chosen["rows"]] == [
        ("key", {"id": number}, "OP_UNKNOWN") for number in (12, 13, 14)
    ]
    assert [(one["code"], one["rows"]) for one in chosen["codes"]] == [("OP_UNKNOWN", 3)]


def _at(moment: str) -> Clock:
    return lambda: datetime.fromisoformat(moment)


def test_a_replay_that_was_overtaken_is_not_a_log_that_started_again(tmp_path: Path) -> None:
    """It counts its late changes; only batches of files can mean that the source's log was reset."""
    lake = Lake(tmp_path)
    strict = with_expressions(spec_of(expect={"short": Expectation(rule="length(v) < 4")}))
    lake.change(strict, 1, [("I", 1, "too long"), ("I", 2, "ok")])
    assert lake.done(strict).quarantined == 1
    lake.change(strict, 2, [("U", 1, "new")])
    lake.done(strict)
    replayed = lake.done(spec_of(), JobOptions(action=HandleErrors(mode="replay")))
    assert (replayed.late_ignored, replayed.warnings) == (1, ())
    assert lake.replica(strict) == {1: "new", 2: "ok"}
    lake.change(strict, 1, [("U", 1, "old")], day=2)
    assert [one.code for one in lake.done(spec_of()).warnings] == ["BATCH_LATE"]


def test_the_command_names_the_rate_in_each_run_that_leaves_it(tmp_path: Path) -> None:
    project(tmp_path)
    lake = Lake(tmp_path)
    lake.load(SPEC, 4)
    lake.change(SPEC, 1, [("I", 11, "a"), ("X", 12, "b")])
    for number in (2, 3):
        _, said = gddl(tmp_path, "run")
        assert "s.t: [QUARANTINE_RATE] more rows are in quarantine" in said
        lake.change(SPEC, number, [("I", 20 + number, "good")])
    gddl(tmp_path, "errors", "dismiss", "--table", "s.t", "--code", "OP_UNKNOWN", "--reason", "test rows")
    assert "QUARANTINE_RATE" not in gddl(tmp_path, "run")[1]


def test_a_full_load_without_a_dismissed_file_needs_attention_until_it_comes(watched: Watched) -> None:
    watched.lake.load(SPEC, 4)
    watched.damaged("LOAD00000002.parquet")
    assert watched.failed() == "FIRST_LOAD_UNREADABLE"
    dismissed = watched.run(action="errors_dismiss", codes=("FILE_UNREADABLE",), reason="lost")
    said = [("LOAD_INCOMPLETE", 1)]
    assert [(warning.code, warning.count) for warning in dismissed.warnings] == said
    first = watched.run()
    assert (first.main.rows, [(warning.code, warning.count) for warning in first.warnings]) == (4, said)
    watched.lake.change(SPEC, 1, [("I", 11, "a")])
    for _ in range(2):  # the second has nothing to do
        assert [warning.code for warning in watched.run().warnings] == ["LOAD_INCOMPLETE"]
        assert watched.attention == ("LOAD_INCOMPLETE",)
    watched.run(action="rebuild")
    assert watched.attention == ("LOAD_INCOMPLETE",), "a rebuild has no rows of it either"
    rows = pa.table({"id": pa.array([7], pa.int32()), "v": ["late"]})
    write(watched.lake.landing(SPEC), "LOAD00000002.parquet", rows)
    assert watched.run().warnings == ()
    assert (watched.attention, watched.lake.replica(SPEC)[7]) == ((), "late")


def test_a_full_load_that_comes_again_is_whole_without_a_dismissed_file(watched: Watched) -> None:
    watched.lake.load(SPEC, 4)
    watched.damaged("LOAD00000002.parquet")
    watched.failed()
    watched.run(action="errors_dismiss", codes=("FILE_UNREADABLE",), reason="lost")
    watched.run()
    (watched.lake.landing(SPEC) / "LOAD00000002.parquet").unlink()
    watched.lake.load(SPEC, 6)
    watched.run()
    assert (watched.attention, len(watched.lake.replica(SPEC))) == ((), 6)


def test_a_dismissed_change_file_is_named_by_each_run_until_it_comes(watched: Watched) -> None:
    """A person has decided, so that it needs no attention; but what it held is not in the table."""
    watched.lake.load(SPEC, 4)
    watched.damaged("20240101-000000001.parquet")
    watched.run()
    watched.run(action="errors_dismiss", codes=("FILE_UNREADABLE",), reason="lost")
    for number in range(2, 30):  # the ledger makes snapshots of its commits
        watched.lake.change(SPEC, number, [("I", 100 + number, "a")], day=number)
        assert [(w.code, w.count) for w in watched.run().warnings] == [("FILES_DISMISSED", 1)]
    assert watched.attention == ()
    watched.lake.change(SPEC, 1, [("I", 11, "late")])
    assert [warning.code for warning in watched.run().warnings] == []
    assert watched.lake.replica(SPEC)[11] == "late"


def test_shared_keys_need_attention_until_other_keys_or_a_dismissal(watched: Watched) -> None:
    loaded = pa.table({"id": pa.array([1, 1, 2], pa.int32()), "v": ["a", "b", "c"]})
    write(watched.lake.landing(SPEC), "LOAD00000001.parquet", loaded)
    watched.run()
    watched.lake.change(SPEC, 1, [("I", 11, "a")])
    watched.run()
    watched.run(action="rebuild")
    assert watched.attention == ("KEYS_SHARED",), "neither a run nor a rebuild by the same keys settles it"
    other = watched.lake.done(replace(SPEC, keys=("id", "v")), JobOptions(action=Rebuild()))
    assert judged(watched.record.after(other, 0.0)) == ()
    watched.lake.done(SPEC, JobOptions(action=Rebuild()))
    watched.run(action="errors_dismiss", codes=("KEYS_SHARED",), reason="the source has them twice")
    assert watched.attention == ()
    watched.lake.change(SPEC, 2, [("I", 12, "a")])
    watched.run()
    assert watched.attention == ()
    write(watched.lake.landing(SPEC), "LOAD00000001.parquet", loaded.slice(0, 2))
    watched.run()
    assert "KEYS_SHARED" in watched.attention, "another load shares keys"


def test_the_command_dismisses_shared_keys(tmp_path: Path) -> None:
    project(tmp_path)
    lake = Lake(tmp_path)
    loaded = pa.table({"id": pa.array([1, 1], pa.int32()), "v": ["a", "b"]})
    write(lake.landing(SPEC), "LOAD00000001.parquet", loaded)
    assert "[KEYS_SHARED]" in gddl(tmp_path, "run")[1]
    (line,), _ = gddl(tmp_path, "status")
    assert (line["state"], line["attention"]) == ("attention", ["KEYS_SHARED"])
    gddl(tmp_path, "errors", "dismiss", "--table", "s.t", "--code", "KEYS_SHARED", "--reason", "meant")
    (line,), _ = gddl(tmp_path, "status")
    assert (line["state"], line["attention"]) == ("fresh", [])
    _, said = gddl(tmp_path, "errors", "dismiss", "--table", "s.t", "--code", "NONE", "--reason", "x", status=2)
    assert "OPTION_INVALID" in said
