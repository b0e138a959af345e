"""Looking at landing folders, and what follows from it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.layout import LandingFolder
from airflow_gddl.contract.spec import DEFAULT_TIERS, InitialLoad, Roots, TableSpec
from airflow_gddl.runtime.compiled.documents import Dependency, PipelineDocument
from airflow_gddl.runtime.landing import polling
from airflow_gddl.runtime.landing.load_task import waves
from airflow_gddl.runtime.landing.polling import Poll, PollWindow, poll, poll_folders
from airflow_gddl.runtime.landing.run_request import RunRequestForm, from_params
from airflow_gddl.runtime.landing.tables_with_work import PipelineListing, PipelineWork, decide, mark
from airflow_gddl.runtime.state.documents import PipelineState, StageEnd
from airflow_gddl.runtime.state.table_runs import RunningJob, TableHint, TableRecord
from airflow_gddl.stores import StoredObject, open_store
from airflow_gddl.topology.pipelines import arrange
from tests.harness.s3_server import Bucket

T1, T2, T3 = (f"2024-01-0{day}T00:00:00.000000+00:00" for day in (1, 2, 3))


# Looking


@dataclass
class Shelf:
    """A store in memory that says how much was listed."""

    names: list[str]
    spans_folders: bool = True
    listed: list[str] = field(default_factory=list)
    returned: int = 0

    def listing_spans_folders(self, _: str) -> bool:
        return self.spans_folders

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:  # noqa: ARG002 - the port's
        self.listed.append(folder)
        for name in sorted(self.names):
            below = name.removeprefix(f"{folder}/")
            if below != name and below > after:
                self.returned += 1
                yield StoredObject(folder, below, len(name), "t", 0.0)

    def exists(self, folder: str) -> bool:
        return any(name.startswith(f"{folder}/") for name in self.names)

    def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    def write(self, path: str, data: bytes) -> None:
        raise PermissionError(path, len(data))


def files(table: str, count: int = 1) -> list[str]:
    return [f"/l/{table.replace('.', '/')}/2024{n:04d}-000000000.parquet" for n in range(count)]


def test_one_listing_serves_a_schema_s_tables() -> None:
    result_store = Shelf([*files("s.a", 2), *files("s.b"), *files("s.ab"), *files("other.a")])
    polls = poll(result_store, "/l", ["s.a", "s.b", "s.none"])
    assert result_store.listed == ["/l/s"]
    assert {name: found.files for name, found in polls.items()} == {"s.a": 2, "s.b": 1, "s.none": 0}
    assert polls["s.none"].digest == ""


def test_folders_of_others_cost_no_more_than_a_page_for_each_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "PAGE", 10)
    names = [*files("s.a", 3), *files("s.m", 500), *files("s.y", 2), *files("s.z", 4)]
    result_store = Shelf(names)
    polls = poll(result_store, "/l", ["s.a", "s.y", "s.z"])
    assert {name: found.files for name, found in polls.items()} == {"s.a": 3, "s.y": 2, "s.z": 4}
    assert result_store.returned < 50
    assert result_store.listed == ["/l/s", "/l/s/y", "/l/s/z"]


@pytest.mark.parametrize("page", [1, 2, 3, 7, 1000])
def test_both_ways_of_listing_see_the_same(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "PAGE", page)
    tables = ["s.a", "s.a b", "s.a-b", "s.a0", "s.A", "s.b", "s.b$", "s.zz"]
    names = list(itertools.chain.from_iterable(files(table, n) for n, table in enumerate(tables)))
    spanning, single = Shelf([*names, *files("s.mm", 20)]), Shelf(names, spans_folders=False)
    assert poll(spanning, "/l", tables) == poll(single, "/l", reversed(tables))


def test_unfinished_and_hidden_files_don_t_count() -> None:
    noise = ("x.parquet.tmp", ".x.parquet", "_tmp/x.parquet", "x.crc", "_SUCCESS", "x.parquet~", "a/.b/c.csv")
    result_store = Shelf([f"/l/s/a/{name}" for name in noise])
    assert poll(result_store, "/l", ["s.a"]) == {"s.a": Poll()}, "not missing, though it has no data"
    result_store.names += ["/l/s/a/LOAD00000001.csv.gz", "/l/s/a/2024/01/31/20240131-000000000.PARQUET"]
    assert poll(result_store, "/l", ["s.a"])["s.a"].files == 2


def test_files_of_every_dialect_count() -> None:
    names = ("partition=0/a+0+0000000042.json.gz", "a-0-12", "x.ndjson", "x.pipe", "LOAD00000001.parquet")
    result_store = Shelf([f"/l/s/a/{name}" for name in (*names, "folder/")])
    assert poll(result_store, "/l", ["s.a"])["s.a"].files == len(names)


def test_local_files_that_change_change_the_digest(tmp_path: Path) -> None:
    store, path = open_store(), tmp_path / "s" / "a" / "LOAD1.parquet"
    assert poll(store, str(tmp_path), ["s.a"]) == {"s.a": Poll(missing=True)}
    seen = set()
    path.parent.mkdir(parents=True)
    assert poll(store, str(tmp_path), ["s.a"]) == {"s.a": Poll()}
    for content in ("x", "y", "longer"):
        path.with_suffix(".tmp").write_text(content)
        path.with_suffix(".tmp").replace(path)
        seen.add(poll(store, str(tmp_path), ["s.a"])["s.a"].digest)
    path.rename(path.with_name("LOAD2.parquet"))
    seen.add(poll(store, str(tmp_path), ["s.a"])["s.a"].digest)
    assert len(seen) == 4
    assert poll(store, str(tmp_path), ["s.a"])["s.a"].digest in seen


def test_a_link_upwards_does_not_make_a_listing_endless(tmp_path: Path) -> None:
    (tmp_path / "s" / "a").mkdir(parents=True)
    (tmp_path / "s" / "a" / "up").symlink_to(tmp_path / "s")
    (tmp_path / "s" / "a" / "LOAD1.parquet").write_text("x")
    assert poll(open_store(), str(tmp_path), ["s.a"])["s.a"].files == 1


def test_a_folder_that_cant_be_listed_stops_its_table_alone(tmp_path: Path) -> None:
    (tmp_path / "s" / "a").mkdir(parents=True)
    (tmp_path / "s" / "a" / "LOAD1.parquet").write_text("x")
    (tmp_path / "s" / "loop").symlink_to("loop")
    (tmp_path / "s" / "file").write_text("x")
    broken = ["s.loop", "s.file", f"s.{'n' * 300}"]
    polls = poll(open_store(), str(tmp_path), ["s.a", "s.none", *broken])
    assert {name: found.refused for name, found in polls.items()} == {
        "s.a": False,
        "s.none": False,
        **dict.fromkeys(broken, True),
    }
    for table in broken:
        with pytest.raises(FatalError, match="STORAGE_UNUSABLE"):
            poll(open_store(), str(tmp_path), [table])


def test_a_window_finds_files_by_their_time_of_modification(tmp_path: Path) -> None:
    path = tmp_path / "s" / "a" / "LOAD1.parquet"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    at = path.stat().st_mtime
    store = open_store()
    for window, expected in (
        (PollWindow(at, None), True),
        (PollWindow(None, at), False),
        (PollWindow(at - 1, at + 1), True),
    ):
        (listed,) = poll_folders(store, {"s.a": LandingFolder(str(tmp_path), "s.a")}, {}, window).values()
        assert listed.poll().in_window is expected


def test_a_bucket_is_listed_in_pages_by_one_client(bucket: Bucket) -> None:
    bucket.page = 3
    bucket.objects |= {f"land/s/t{n}/2024010{n}-000000000.parquet": b"x" for n in range(8)}
    store = open_store()
    polls = poll(store, "s3://bucket/land", [f"s.t{n}" for n in range(8)])
    assert all(found.files == 1 for found in polls.values())
    assert len(bucket.requests) == 3
    bucket.etags["land/s/t3/20240103-000000000.parquet"] = "other"
    again = poll(store, "s3://bucket/land", [f"s.t{n}" for n in range(8)])
    assert [name for name in polls if polls[name] != again[name]] == ["s.t3"]
    bucket.fail = 403
    with pytest.raises(FatalError, match="STORAGE_DENIED"):
        poll(store, "s3://bucket/land", ["s.t1"])


# What follows


def spec(table: str, *depends_on: str) -> TableSpec:
    return TableSpec(table=table, keys=("id",), source="s", depends_on=depends_on)


@dataclass
class World:
    """A pack, what lies there, what is remembered."""

    specs: tuple[TableSpec, ...]
    dependencies: tuple[Dependency, ...] = ()
    unmet: tuple[str, ...] = ()
    polls: dict[str, Poll] = field(default_factory=dict)
    state: PipelineState = field(default_factory=PipelineState)
    others: dict[str, PipelineState] = field(default_factory=dict)
    replicas: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)

    @property
    def document(self) -> PipelineDocument:
        (pipeline,) = arrange(self.specs, DEFAULT_TIERS).pipelines
        return PipelineDocument(
            pipeline=pipeline,
            roots=Roots(landing="/l", lake="/k"),
            runner="local",
            specs=self.specs,
            tiers=DEFAULT_TIERS,
            dependencies=self.dependencies,
            unmet=self.unmet,
        )

    def poll(self, table: str) -> Poll:
        return self.polls.get(table, Poll())

    def taken(self, *tables: str, run: str = "before") -> None:
        """These tables are loaded as they lie there now."""
        for each in self.specs:
            if each.table in tables:
                hint = TableHint(mark=mark(each, self.poll(each.table)), looked_at=T1, run=run)
                self.state = self.state.with_records({each.table: TableRecord(hint=hint)})
                self.replicas.add(each.table)

    def decide(
        self, asked: RunRequestForm | None = None, run: str = "now", since: dict[str, str] | None = None
    ) -> PipelineWork:
        names = [each.table for each in self.specs] + [other.spec.table for other in self.dependencies]
        job = RunningJob(0.0, math.inf, "another")
        busy = {name: replace(self.state.record(name), running=job) for name in self.running}
        seen = PipelineListing(
            looked_at=T2,
            polls={name: self.poll(name) for name in names},
            state=self.state.with_records(busy),
            others=self.others,
            exists=lambda each: each.table in self.replicas,
            since=since or {},
        )
        return decide(self.document, asked or RunRequestForm(), run, seen)


def test_tables_with_new_files_have_work() -> None:
    world = World((spec("s.a"), spec("s.b"), spec("s.c")), polls={"s.a": Poll(1, "x"), "s.b": Poll(1, "y")})
    world.taken("s.b")
    work = world.decide()
    assert (sorted(work.initial), sorted(work.increments)) == (["s.a"], [])
    world.polls["s.b"] = Poll(2, "z")
    world.replicas = {"s.a"}
    work = world.decide()
    assert (sorted(work.initial), sorted(work.increments)) == ([], ["s.a", "s.b"])


def test_table_that_is_loaded_from_its_source_waits_for_no_file() -> None:
    world = World((replace(spec("s.a"), initial_load=InitialLoad()), spec("s.b")))
    assert sorted(world.decide().initial) == ["s.a"]
    world.taken("s.a")
    assert not world.decide().is_some


@pytest.mark.parametrize(
    ("dialect", "options"),
    [("debezium", {"capture": {"connector": "postgresql"}}), ("debezium", {"topic": "crm.{schema}.{table}"})],
)
def test_table_whose_changes_jobs_read_themselves_has_work_at_each_poll(dialect: str, options: dict[str, Any]) -> None:
    world = World((replace(spec("s.a"), dialect=dialect, options=options), spec("s.b")))
    for _ in range(2):
        assert sorted({**world.decide().initial, **world.decide().increments}) == ["s.a"]
        world.taken("s.a")


def test_a_changed_row_is_shown_to_the_job_without_new_files() -> None:
    world = World((spec("s.a"),), polls={"s.a": Poll(1, "x")})
    world.taken("s.a")
    assert not world.decide().is_some
    world.specs = (replace(world.specs[0], history=True),)
    assert sorted(world.decide().increments) == ["s.a"]


def test_a_folder_that_vanished_is_for_the_job_to_judge_once() -> None:
    world = World((spec("s.a"),), polls={"s.a": Poll(1, "x")})
    world.taken("s.a")
    world.polls.clear()
    assert sorted(world.decide().increments) == ["s.a"]
    world.taken("s.a")
    assert not world.decide().is_some


def test_a_finished_run_that_is_cleared_does_again_what_it_did() -> None:
    world = World((spec("s.a"), spec("s.b")), polls={"s.a": Poll(1, "x"), "s.b": Poll(1, "y")})
    world.taken("s.a", run="now")
    world.taken("s.b", run="before")
    world.state = world.state.after(StageEnd(stage="initial", run="another", max_tries=0))
    assert not world.decide().is_some
    world.state = world.state.after(StageEnd(stage="initial", run="now", max_tries=0))
    assert sorted(world.decide().increments) == ["s.a"]
    assert not world.decide(run="later").is_some


def test_only_the_requested_tables_run() -> None:
    world = World((spec("s.a"), spec("s.b"), spec("s.c")), polls={"s.b": Poll(1, "y"), "s.c": Poll(1, "z", True)})
    world.taken("s.a", "s.b")
    work = world.decide(RunRequestForm(tables=("s.a",)))
    assert (sorted(work.initial), sorted(work.increments)) == ([], ["s.a"])
    with pytest.raises(MetadataError, match=r"OPTION_INVALID.*all 3 tables.*set all to true"):
        world.decide(RunRequestForm(action="rebuild"))
    work = world.decide(RunRequestForm(action="rebuild", all=True))
    assert (sorted(work.initial), sorted(work.increments)) == (["s.a", "s.b", "s.c"], [])
    assert sorted(world.decide(RunRequestForm(start="2024-01-01")).initial) == ["s.c"]
    assert not world.decide(RunRequestForm(tables=("s.a",), start="2024-01-01")).is_some
    work = world.decide(RunRequestForm(tables=("s.x", "s.a")))
    assert sorted(work.increments) == ["s.a"], "a table that is none stops no other"
    assert "s.x" in str(work.form.refused(("s.a", "s.b", "s.c")))
    with pytest.raises(MetadataError, match=r"OPTION_INVALID.*s\.x"):
        world.decide(RunRequestForm(tables=("s.x",)))


def test_a_table_that_another_run_loads_is_left_to_the_next_run_with_those_that_depend_on_it() -> None:
    names = ("s.a", "s.b", "s.c", "s.d")
    specs = (spec("s.a"), spec("s.b", "s.a"), spec("s.c", "s.b"), spec("s.d"))
    world = World(specs, polls={name: Poll(1, name) for name in names}, running={"s.a"})
    work = world.decide()
    assert (sorted(work.initial), work.elsewhere) == (["s.d"], ("s.a", "s.b", "s.c"))
    requested = world.decide(RunRequestForm(tables=("s.a", "s.c")))
    assert (sorted(requested.initial), requested.elsewhere) == (["s.a", "s.c"], ())
    world.taken("s.a", "s.d")  # nothing new for s.a, which is loaded all the same
    work = world.decide()
    assert (work.is_some, work.elsewhere) == (False, ("s.b", "s.c"))
    assert "s.b is loaded by another run" in work.why_none
    world.running = set()
    assert sorted(world.decide().initial) == ["s.b", "s.c"]


def test_linked_tables_are_loaded_by_one_task() -> None:
    specs = (spec("s.a", "s.b"), spec("s.b"), spec("s.c", "s.d"), spec("s.d"), spec("s.e"), spec("s.f"))
    world = World(specs, polls={one.table: Poll(1, one.table) for one in specs}, replicas={"s.a", "s.d", "s.f"})
    work = world.decide()
    assert (sorted(work.initial), sorted(work.increments)) == (["s.e"], ["s.a", "s.b", "s.c", "s.d", "s.f"])


def test_a_dependency_in_the_pack_comes_first() -> None:
    world = World(
        (spec("s.a", "s.b"), spec("s.b", "s.c"), spec("s.c"), spec("s.d")),
        polls={name: Poll(1, name) for name in ("s.a", "s.b", "s.c", "s.d")},
        replicas={"s.c"},
    )
    work = world.decide()
    assert (sorted(work.initial), sorted(work.increments)) == (["s.d"], ["s.a", "s.b", "s.c"])
    groups = [sorted(each.table for each in wave) for wave in waves(world.specs)]
    assert groups == [["s.c", "s.d"], ["s.b"], ["s.a"]]


OTHER = Dependency(dag_id="other", spec=TableSpec(table="o.y", keys=("id",)))


def waiting() -> World:
    """s.x has news and depends on o.y of another pipeline, which has news too."""
    return World(
        (spec("s.x", "o.y"), spec("s.z")),
        (OTHER,),
        polls={"s.x": Poll(1, "x"), "s.z": Poll(1, "z"), "o.y": Poll(1, "y")},
    )


def loaded(seen: Poll, looked_at: str) -> dict[str, PipelineState]:
    hint = TableHint(mark=mark(OTHER.spec, seen), looked_at=looked_at, run="r")
    return {"other": PipelineState(tables={"o.y": TableRecord(hint=hint)})}


def test_a_table_waits_for_another_pipeline_without_blocking_others() -> None:
    world = waiting()
    work = world.decide()
    assert (dict(work.held), sorted(work.initial)) == ({"s.x": ("o.y",)}, ["s.z"])
    world.others = loaded(Poll(1, "older"), T1)
    assert list(world.decide().held) == ["s.x"]


def test_it_starts_once_its_dependency_has_no_pending_files() -> None:
    world = waiting()
    world.others = loaded(Poll(1, "y"), T1)
    assert sorted(world.decide().initial) == ["s.x", "s.z"]


def test_it_starts_once_the_files_of_its_first_poll_are_loaded() -> None:
    world = waiting()
    world.others = loaded(Poll(1, "older than now, newer than the first poll"), T3)
    assert list(world.decide(since={"s.x": T2}).held) == []
    world.others = loaded(Poll(1, "older than the first poll"), T1)
    assert list(world.decide(since={"s.x": T2}).held) == ["s.x"]


def test_it_does_not_wait_for_a_table_without_a_pipeline() -> None:
    world = waiting()
    world.dependencies, world.unmet = (), ("o.y",)
    work = world.decide()
    assert (dict(work.held), dict(work.unmet)) == ({}, {"s.x": ("o.y",)})


def test_a_named_table_is_reloaded_whatever_was_modified_in_the_window() -> None:
    """Its files of that time may have been written again since; of all tables, those with files of that time are."""
    world = World((spec("s.x"), spec("s.z")), polls={"s.x": Poll(1, "x"), "s.z": Poll(1, "z", in_window=True)})
    asked = RunRequestForm(action="reload", start="2024-01-31")

    def chosen(form: RunRequestForm) -> list[str]:
        work = world.decide(form)
        return sorted({*work.initial, *work.increments})

    assert chosen(replace(asked, tables=("s.x",))) == ["s.x"]
    assert chosen(replace(asked, all=True)) == ["s.z"]
    assert chosen(replace(asked, tables=("s.x",), action="run")) == []


def test_a_requested_table_does_not_wait() -> None:
    assert dict(waiting().decide(RunRequestForm(tables=("s.x",))).held) == {}


# The form


def test_params_become_a_run_request() -> None:
    given = {"tables": ["a.b"], "action": "rebuild", "from": "2024-01-31T00:00:00Z", "to": None}
    asked = from_params(json.dumps(given))
    assert asked == RunRequestForm(tables=("a.b",), action="rebuild", start="2024-01-31T00:00:00Z")
    assert asked.window == PollWindow(1706659200.0, None)
    assert from_params({"action": "replay", "codes": ["OP_UNKNOWN"]}).codes == ("OP_UNKNOWN",)
    given = {"action": "dismiss", "codes": ["OP_UNKNOWN"], "reason": " gone "}
    assert from_params(given) == RunRequestForm(action="dismiss", codes=("OP_UNKNOWN",), reason="gone")
    assert from_params({}) == RunRequestForm()
    assert not RunRequestForm().is_some


@pytest.mark.parametrize(
    "params",
    [
        "{",
        "[]",
        {"tables": 7},
        {"from": "yesterday"},
        {"from": "2024-02-01", "to": "2024-01-01"},
        {"to": 7},
        {"action": "drop"},
        {"action": "rebuild", "confirmed": True},
        {"codes": ["OP_UNKNOWN"]},
        {"action": "replay", "codes": {"OP_UNKNOWN": 1}},
        {"action": "replay", "codes": [7]},
        {"action": "dismiss", "codes": ["OP_UNKNOWN"]},
        {"action": "dismiss", "codes": ["OP_UNKNOWN"], "reason": " "},
        {"action": "dismiss", "reason": "gone"},
        {"action": "replay", "reason": "gone"},
        {"tables": ["a.b"], "fullrefresh": True},
    ],
)
def test_unknown_params_are_refused(params: str | dict[str, object]) -> None:
    with pytest.raises(MetadataError, match="OPTION_INVALID"):
        from_params(params)


def test_a_dismissal_names_its_tables() -> None:
    asked = RunRequestForm(action="dismiss", codes=("OP_UNKNOWN",), reason="gone")
    assert asked.names(["s.a"]) == {"s.a"}
    assert replace(asked, tables=("s.a",)).names(["s.a", "s.b"]) == {"s.a"}
    with pytest.raises(MetadataError, match="name tables"):
        asked.names(["s.a", "s.b"])


def test_a_manual_run_passes_large_folders_to_the_job() -> None:
    world = World((spec("s.a"), spec("s.b")), polls={"s.a": Poll(1_000, "x"), "s.b": Poll(1_001, "y")})
    world.taken("s.a", "s.b")
    assert not world.decide(run="scheduled__2024-01-01T00:00:00+00:00").is_some
    assert sorted(world.decide(run="manual__2024-01-01T00:00:00+00:00").increments) == ["s.b"]


def test_a_manual_run_passes_tables_that_lost_their_replica_to_the_job() -> None:
    world = World((spec("s.a"), spec("s.b"), spec("s.new")), polls={"s.a": Poll(1, "x"), "s.b": Poll(1, "y")})
    world.taken("s.a", "s.b")
    world.replicas = {"s.a"}
    assert not world.decide(run="scheduled__2024-01-01T00:00:00+00:00").is_some
    work = world.decide(run="manual__2024-01-01T00:00:00+00:00")
    assert (sorted(work.initial), sorted(work.increments)) == ([], ["s.b"])


def test_tables_of_several_roots_are_polled_together(tmp_path: Path) -> None:
    for place in ("crm/public/orders/1.parquet", "erp/public/orders/1.parquet", "erp/public/orders/2.parquet"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(b"x")
    roots = {f"{name}.t": LandingFolder(str(tmp_path / name), "public.orders") for name in ("crm", "erp", "none")}
    found = poll_folders(open_store(), roots, {})
    assert {table: tally.poll().files for table, tally in found.items()} == {"crm.t": 1, "erp.t": 2, "none.t": 0}
