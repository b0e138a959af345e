"""`gddl verify --against`: a replica compared with the Delta table of another job, or with another one of ours."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.totals import TableOutcome
from tests.adopt.taking_over import AFTER, BEFORE, SCHEMA, Landed, Rows, adopting, chance, table_of, values
from tests.harness.lake import Lake, spec_of

THEIRS = "s.theirs"


@dataclass
class Pair:
    """A table that a row loads under another name than a job of others, from the same files."""

    lake: Lake
    spec: TableSpec
    source: Landed

    @classmethod
    def at(cls, root: Path, seed: str = "7", **fields: Any) -> Pair:
        return cls(Lake(root), replace(spec_of(**fields), table="s.ours", source_table="s.t"), Landed.of(seed))

    @property
    def path(self) -> str:
        return f"{self.lake.roots.lake}/s/theirs"

    def land(self, *numbers: int, at: int = AFTER) -> None:
        self.source.land(self.lake, self.spec, numbers, at)

    def run(self, *numbers: int, at: int = AFTER) -> JobResult:
        self.land(*numbers, at=at)
        return self.lake.done(self.spec)

    def they_have(self, rows: Rows) -> None:
        write_deltalake(self.path, table_of(rows), mode="overwrite")

    def against(self, table: str = THEIRS) -> JobResult:
        return self.lake.result(self.spec, JobOptions(action=Verify(against=table)))

    def compared(self) -> tuple[str, dict[str, Any]]:
        details = self.against().details
        return details["verdict"], dict(details["against"])

    def code(self, table: str = THEIRS) -> str:
        error = self.against(table).error
        assert error is not None
        return error.code


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair.at(tmp_path)


def moved(one: Rows, other: Rows) -> set[int]:
    return {key for key in {*one, *other} if one.get(key) != other.get(key)}


def test_rows_are_equal_behind_or_ahead(pair: Pair) -> None:
    states = pair.source.states
    pair.run(*range(5))
    pair.run(5, 6)
    version = DeltaTable(pair.lake.layout(pair.spec).replica).version()
    pair.they_have(states[4])
    verdict, found = pair.compared()
    changed = moved(states[4], states[6])
    assert (verdict, found["behind"], found["ahead"], found["different"]) == ("behind", len(changed), 0, 0)
    assert found["equal"] == len({*states[4], *states[6]} - changed)
    assert [one.code for one in pair.against().warnings] == ["AGAINST_UNSETTLED"]
    pair.they_have(states[6])
    verdict, found = pair.compared()
    assert (verdict, found["equal"], found["rows"], found["their_rows"]) == ("equal", *[len(states[6])] * 3)
    pair.land(7)
    pair.they_have(states[7])
    verdict, found = pair.compared()
    assert (verdict, found["ahead"] > 0, found["different"]) == ("ahead", True, 0)
    assert found["ahead"] + found["behind"] == len(moved(states[6], states[7])), "a row may be as it was once before"
    assert [Path(path).name for path in found["in_files"]] == ["20240101-000000007.parquet"]
    assert DeltaTable(pair.lake.layout(pair.spec).replica).version() == version, "nothing is written"
    pair.run()
    assert pair.compared()[0] == "equal"


def test_rows_that_differ_are_shown_and_fail(pair: Pair) -> None:
    pair.run(*range(6))
    wrong = dict(pair.source.states[5])
    key, (value, sequence) = next(iter(wrong.items()))
    wrong[key] = ("edited", sequence)
    wrong[99] = ("of nobody", 1)
    pair.they_have(wrong)
    result = pair.against()
    assert (result.status, pair.code()) == ("failed", "AGAINST_DIFFERENT")
    found = result.details["against"]
    shown = {row["key"]: (row["ours"], row["theirs"]) for row in found["rows_different"]}
    assert (result.details["verdict"], found["different"]) == ("different", 2)
    ours, theirs = shown[f'{{"id":{key}}}']
    assert value in ours
    assert "edited" in theirs
    assert shown['{"id":99}'][0] is None
    hidden = replace(pair.spec, mask={"v": "hash"})
    masked = pair.lake.result(hidden, JobOptions(action=Verify(against=THEIRS))).details
    assert masked["against"]["not_compared"] == {"v": "the metadata row masks it"}
    assert "edited" not in str(masked)


@pytest.mark.parametrize("by", ["name", "path", "address"])
def test_a_table_is_named_by_its_place_in_the_lake_or_its_path(by: str, pair: Pair) -> None:
    pair.run(*range(3))
    pair.they_have(pair.source.states[2])
    named = {"name": THEIRS, "path": f"{pair.path}/", "address": Path(pair.path).as_uri()}[by]
    assert pair.against(named).details["verdict"] == "equal"


def test_another_table_of_ours_is_compared_without_rows_that_are_marked_deleted(pair: Pair, tmp_path: Path) -> None:
    other = Pair.at(tmp_path / "other", delete="soft")
    pair.run(*range(6))
    other.run(*range(6))
    path = other.lake.layout(other.spec).replica
    assert DeltaTable(path).to_pyarrow_table().num_rows > len(pair.source.states[5])
    found = pair.against(path).details
    assert (found["verdict"], found["against"]["their_rows"]) == ("equal", len(pair.source.states[5]))
    assert found["against"]["not_compared"] == {}


@pytest.mark.parametrize(
    ("named", "spec"),
    [
        ("s.nobody", {}), ("theirs", {}), ("s.", {}), ("/nowhere/at/all", {}), (THEIRS, {"keys": ()}),
        (THEIRS, {"keys": ("v",)}),
    ],
    ids=str,
)  # fmt: skip
def test_tables_that_cannot_be_compared_are_refused(named: str, spec: dict[str, Any], pair: Pair) -> None:
    pair.spec = replace(pair.spec, **spec)
    if spec.get("keys") == ("v",):
        pair.source.land(pair.lake, pair.spec, [0], AFTER)
        pair.lake.done(pair.spec)
        write_deltalake(pair.path, table_of(pair.source.states[0]).drop_columns(["v"]))
    else:
        pair.run(0)
        pair.they_have(pair.source.states[0])
    assert pair.code(named) == "AGAINST_REFUSED"


def test_other_table_that_cannot_be_read_is_named(pair: Pair) -> None:
    pair.run(*range(3))
    pair.they_have(pair.source.states[2])
    (log,) = Path(pair.path, "_delta_log").glob("*.json")
    sound = log.read_text()
    for text in (sound.replace(r"\"type\":\"string\"", r"\"type\":\"variant\""), "{"):
        assert text != sound
        log.write_text(text)
        assert pair.code() == "AGAINST_REFUSED"
    log.write_text(sound)
    for file in Path(pair.path).glob("*.parquet"):
        file.unlink()
    found = pair.lake.run(pair.spec, JobOptions(action=Verify(against=THEIRS)))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert (found.result.error.code, found.retriable) == ("FILES_CHANGED", True)


def test_table_that_is_not_loaded_says_so(pair: Pair) -> None:
    pair.they_have(pair.source.states[0])
    result = pair.against()
    assert (result.status, [one.code for one in result.warnings]) == ("skipped", ["TABLE_NOT_LOADED"])


@pytest.mark.parametrize("by", ["sequence", "no sequence"])
@pytest.mark.parametrize("seed", range(12))
def test_both_tables_differ_as_one_is_behind_the_other(seed: int, by: str, tmp_path: Path) -> None:
    """A copy of the other job's table is adopted, with a cut there or before it; then each goes on by itself."""
    random, pair = chance(f"beside {by} {seed}"), Pair.at(tmp_path, f"{by} {seed}", history=seed % 2 == 0)
    pair.source = Landed.of(f"{by} {seed}", files=12)
    states, schema = pair.source.states, SCHEMA
    if by == "no sequence":
        schema = schema.remove(schema.get_field_index("seq"))
    copied = random.randrange(8)
    told = random.randint(0, copied) if by == "sequence" else copied
    pair.land(*range(told + 1), at=BEFORE)
    pair.land(*range(told + 1, copied + 1))
    write_deltalake(pair.path, table_of(states[copied], schema))
    shutil.copytree(pair.path, pair.lake.layout(pair.spec).replica)
    pair.lake.done(pair.spec, adopting())
    ours, theirs = (random.randint(copied, len(pair.source.files) - 1) for _ in range(2))
    pair.run(*range(copied + 1, ours + 1))
    pair.land(*range(ours + 1, theirs + 1))
    write_deltalake(pair.path, table_of(states[theirs], schema), mode="overwrite")
    wanted = [states[number] for number in (ours, theirs)]
    if by == "no sequence":
        wanted = [{key: (value, None) for key, (value, _) in rows.items()} for rows in wanted]
    changed = moved(*wanted)
    _, found = pair.compared()
    assert (found["rows"], found["their_rows"]) == (len(wanted[0]), len(wanted[1]))
    assert (found["equal"], found["different"]) == (len({*wanted[0], *wanted[1]} - changed), 0), found
    assert found["behind"] + found["ahead"] == len(changed)
    assert found["ahead"] == 0 or theirs > ours
    pair.run()
    assert pair.lake.replica(pair.spec) == values(states[max(ours, theirs)])
