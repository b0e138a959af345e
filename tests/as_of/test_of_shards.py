"""Cuts of tables with several sources, whose changes a task of AWS DMS each delivers: every source as of the moment."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Erase, ErrorsDismiss, Rebuild
from airflow_gddl.contract.consistent_cut import Cut
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.runtime import Step
from tests.as_of.cuts import Cuts
from tests.as_of.test_by_time import BEGAN, Service, at, cuts_of, refused, stamp
from tests.as_of.test_of_commits import SPECS, Oracle, an_hour_later, world
from tests.conftest import LocalPort
from tests.harness.lake import Lake, read
from tests.harness.landing import write
from tests.harness.sharded import Sharded
from tests.one_task.commands import gddl

SHARDS = ("eu", "us")


class KilledError(BaseException):
    """As of a process that is killed: nothing is tidied up behind it."""


@dataclass
class Shop:
    """The table `s.t` of two sources, and what each held when; sequences of both begin at nought.

    Attributes:
        states: by source, the rows behind each commit, id to v, oldest first.
    """

    lake: Lake
    fields: Mapping[str, Any] = field(default_factory=dict)
    states: dict[str, list[tuple[datetime, dict[int, int]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        usual = {"sequence_by": (), "sweep_after": "0s", "sweep_limit": 1.0}
        self.spec: TableSpec = Sharded(self.lake.root, SHARDS, {**usual, **self.fields}).spec
        self.services = {shard: Service(self.lake) for shard in SHARDS}

    def of(self, shard: str) -> TableSpec:
        return self.spec.of_shard(shard)

    def load(self, shard: str, rows: dict[int, int], loaded: datetime = BEGAN) -> None:
        self.services[shard].load(self.of(shard), rows, loaded)
        self.states.setdefault(shard, []).append((loaded, dict(rows)))

    def commit(self, shard: str, *transactions: tuple[datetime, Sequence[tuple[str, int, int | None]]]) -> None:
        """A file of transactions, each with its changes."""
        changes = [(time, *change) for time, those in transactions for change in those]
        self.services[shard].change(self.of(shard), changes)
        for time, those in transactions:
            held = dict(self.states[shard][-1][1])
            for operation, key, value in those:
                if operation == "D":
                    held.pop(key, None)
                else:
                    held[key] = value or 0
            self.states[shard].append((time, held))

    def rows(self, time: datetime) -> list[dict[str, Any]]:
        """What the sources held then."""
        held = {shard: [rows for commit, rows in states if commit <= time][-1] for shard, states in self.states.items()}
        rows = [{"_source": shard, "id": key, "v": v} for shard, those in held.items() for key, v in those.items()]
        return sorted(rows, key=str)

    def cuts(self, *others: TableSpec) -> Cuts:
        return cuts_of(self.lake, self.spec, *others)

    def shown(self, cut: Cut) -> list[dict[str, Any]]:
        return self.cuts().rows(cut, "s.t", "_source", "id", "v")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return filled(Lake(tmp_path))


def filled(lake: Lake, **fields: Any) -> Shop:
    """Three transactions of each source, of which those of `us` are a second later."""
    shop = Shop(lake, fields)
    for number, shard in enumerate(SHARDS):
        shop.load(shard, {1: 10, 2: 20 + number})
        shop.commit(shard, (at(1 + number), [("U", 1, 11), ("U", 2, 22)]), (at(11 + number), [("D", 2, None)]))
        shop.commit(shard, (at(21 + number), [("I", 3, 30 + number)]))
    lake.done(shop.spec)
    return shop


def go_on(shop: Shop, time: datetime) -> None:
    """A later change of each source, behind files that are still to come."""
    for service in shop.services.values():
        service.sequence, service.files["s.t"] = service.sequence + 100, service.files["s.t"] + 10
    for shard in SHARDS:
        shop.commit(shard, (time, [("I", 6, 60)]))
    shop.lake.result(shop.spec)


@pytest.mark.parametrize("second", [0, 1, 2, 11, 15, 20])
def test_a_cut_has_each_source_as_it_was_then(shop: Shop, second: int) -> None:
    cut = shop.cuts().make("cut", at(second).isoformat())
    assert shop.shown(cut) == shop.rows(at(second))
    (table,) = cut.tables
    assert (table.rows, table.sequence) == (len(shop.rows(at(second))), None)
    assert {shard: one.generation for shard, one in table.shards.items()} == dict.fromkeys(SHARDS, 1)


def test_the_latest_cut_is_before_the_newest_change_of_the_source_that_is_furthest_behind(shop: Shop) -> None:
    cut = shop.cuts().make("latest")
    assert shop.shown(cut) == shop.rows(at(20))
    shop.commit("us", (at(40), [("I", 4, 40)]))
    shop.lake.done(shop.spec)
    code, message = refused(shop.lake, at(30).isoformat(), shop.spec)
    assert (code, "source eu of s.t: complete until" in message) == ("CUT_NOT_COMPLETE", True)
    assert "source us" not in message


def test_a_file_of_one_source_that_waits_ends_what_is_complete_of_it_alone(shop: Shop) -> None:
    go_on(shop, at(60))
    shop.services["eu"].files["s.t"] = 5
    shop.commit("eu", (at(30), [("I", 5, 50)]))
    code, message = refused(shop.lake, at(40).isoformat(), shop.spec)
    assert (code, "source eu of s.t" in message, "source us" in message) == ("CUT_NOT_COMPLETE", True, False)
    assert "a file waits to be loaded" in message


def test_a_quarantined_row_ends_what_is_complete_of_its_source(shop: Shop) -> None:
    bad = pa.table({
        "Op": ["U"], "AR_H_CHANGE_SEQ": [f"{90:035d}"], "AR_H_COMMIT_TIMESTAMP": [at(30)], "id": ["none"], "v": ["1"],
    })  # fmt: skip
    write(shop.lake.landing(shop.of("us")), "20240101-000000009.parquet", bad)
    stamp(shop.lake.landing(shop.of("us")) / "20240101-000000009.parquet", at(31))
    shop.lake.result(shop.spec)
    go_on(shop, at(50))
    code, message = refused(shop.lake, at(40).isoformat(), shop.spec)
    assert (code, "source us of s.t" in message, "source eu" in message) == ("CUT_NOT_COMPLETE", True, False)
    assert "are in quarantine" in message
    codes = {row["code"] for row in read(shop.lake.layout(shop.spec).errors)}
    shop.lake.done(shop.spec, JobOptions(action=ErrorsDismiss(codes=tuple(codes), reason="a test")))
    cut = shop.cuts().make("settled", at(40).isoformat())
    assert shop.shown(cut) == shop.rows(at(40))


def test_each_source_begins_with_its_own_full_load(shop: Shop) -> None:
    shop.load("eu", {1: 7, 9: 90}, loaded=at(1000))
    shop.lake.done(shop.spec)
    for shard in SHARDS:
        shop.commit(shard, (at(2000), [("U", 1, 8)]))
    shop.lake.done(shop.spec)
    cuts = shop.cuts()
    cut = cuts.make("after", at(1500).isoformat())
    assert shop.shown(cut) == shop.rows(at(1500))
    assert tuple(one.generation for one in cut.tables[0].shards.values()) == (2, 1)
    code, message = refused(shop.lake, at(500).isoformat(), shop.spec)
    assert (code, "source eu of s.t" in message, "source us" in message) == ("CUT_BEFORE_LOAD", True, False)


def test_a_table_of_several_sources_is_shown_beside_one_of_a_single_source(shop: Shop) -> None:
    single = TableSpec(table="s.single", keys=("id",), settle="0s")
    service = Service(shop.lake)
    service.load(single, {1: 1})
    service.change(single, [(at(3), "U", 1, 2), (at(25), "U", 1, 3)])
    shop.lake.done(single)
    cuts = shop.cuts(single)
    cut = cuts.make("both", at(11).isoformat())
    assert shop.shown(cut) == shop.rows(at(11))
    assert cuts.rows(cut, "s.single") == [{"id": 1, "v": 2}]


def test_a_cut_is_made_again_whatever_came_since(shop: Shop) -> None:
    cuts = shop.cuts()
    first = cuts.make("first", at(11).isoformat())
    for shard in SHARDS:
        shop.commit(shard, (at(60), [("U", 1, 99)]))
    shop.lake.done(shop.spec)
    assert [one.digest for one in cuts.again(first, "again").tables] == [one.digest for one in first.tables]


def test_an_erased_key_leaves_the_cut_of_its_source_alone(shop: Shop) -> None:
    cuts = shop.cuts()
    cut = cuts.make("first", at(11).isoformat())
    before = shop.rows(at(11))
    shop.lake.done(shop.spec, JobOptions(action=Erase(key={"_source": "us", "id": "1"}, asked_by="x")))
    left = [row for row in before if (row["_source"], row["id"]) != ("us", 1)]
    entry = cuts.stored("first").tables[0]
    assert (shop.shown(cut), entry.erased, entry.digest) == (left, 1, "")
    assert shop.shown(cuts.make("second", at(11).isoformat())) == left


def test_columns_of_one_source_alone_are_null_in_the_others(shop: Shop) -> None:
    spec = shop.of("eu")
    ids = pa.array([7], pa.int32())
    more = pa.table({
        "Op": ["I"], "AR_H_CHANGE_SEQ": [f"{50:035d}"], "AR_H_COMMIT_TIMESTAMP": pa.array([at(30)]), "id": ids,
        "v": ids, "more": ids,
    })  # fmt: skip
    write(shop.lake.landing(spec), "20240101-000000008.parquet", more)
    stamp(shop.lake.landing(spec) / "20240101-000000008.parquet", at(31))
    go_on(shop, at(60))
    cuts = shop.cuts()
    then, now = cuts.make("then", at(20).isoformat()), cuts.make("now", at(20).isoformat(), schema="now")
    later = cuts.make("later", at(40).isoformat())
    assert ["more" in cut.tables[0].columns for cut in (then, now, later)] == [False, True, True]
    assert {row["more"] for row in cuts.rows(now, "s.t", "more")} == {None}
    assert [row["more"] for row in cuts.rows(later, "s.t", "_source", "id", "more") if row["id"] == 7] == [7]


def test_a_source_that_the_row_no_longer_names_refuses_new_cuts_and_repeats_old_ones(shop: Shop) -> None:
    first = shop.cuts().make("first", at(11).isoformat())
    alone = replace(shop.spec, shards=("eu",), shard_landings={"eu": shop.spec.shard_landings["eu"]})
    cuts = cuts_of(shop.lake, alone)
    code, message = refused(shop.lake, at(11).isoformat(), alone)
    assert (code, "no longer names us" in message) == ("CUT_NOT_COMPLETE", True)
    assert [one.digest for one in cuts.again(first, "again").tables] == [one.digest for one in first.tables]


def _killed(step: Step) -> None:
    if step.step == "replica":
        raise KilledError


def test_a_batch_of_a_former_source_that_broke_off_refuses_the_table(tmp_path: Path) -> None:
    shop = Shop(Lake(tmp_path))
    for shard in SHARDS:
        shop.load(shard, {1: 1})
        shop.commit(shard, (at(1), [("I", 2, 2)]), (at(9), [("I", 3, 3)]))
    alone = replace(shop.spec, shards=("eu",), shard_landings={"eu": shop.spec.shard_landings["eu"]})
    shop.lake.done(alone)
    with pytest.raises(KilledError):
        shop.lake.result(shop.spec, observe=_killed)
    code, message = refused(shop.lake, at(5).isoformat(), alone)
    assert (code, "no longer names us" in message) == ("CUT_NOT_COMPLETE", True)


def test_a_repeated_cut_has_no_column_of_a_source_that_was_added(shop: Shop) -> None:
    first = shop.cuts().make("first", at(11).isoformat())
    landing = shop.lake.root / "landing-ap"
    landings = {**shop.spec.shard_landings, "ap": str(landing)}
    spec = replace(shop.spec, shards=(*SHARDS, "ap"), shard_landings=landings)
    ids = pa.array([1], pa.int32())
    write(landing / "s" / "t", "LOAD00000001.parquet", pa.table({"id": ids, "v": ids, "more": ids}))
    shop.lake.done(spec)
    again = cuts_of(shop.lake, spec).again(first, "again").tables[0]
    assert (again.columns, again.digest) == (first.tables[0].columns, first.tables[0].digest)


def test_a_ledger_that_is_an_older_copy_is_refused(shop: Shop) -> None:
    state = Path(shop.lake.layout(shop.spec).of_shard(shop.lake.roots, shop.spec, "eu").state)
    shutil.copytree(state, shop.lake.root / "copy")
    for shard in SHARDS:
        shop.commit(shard, (at(60), [("U", 1, 99)]))
        shop.lake.done(shop.spec)
    shutil.rmtree(state)
    shutil.copytree(shop.lake.root / "copy", state)
    assert refused(shop.lake, at(11).isoformat(), shop.spec)[0] == "LEDGER_BEHIND"


def test_changes_that_another_writer_has_removed_refuse_cuts_also_after_a_rebuild(shop: Shop) -> None:
    DeltaTable(shop.lake.layout(shop.spec).changes).delete("id = 1 and v = 11 and _source = 'us'")
    for action in (None, Rebuild()):
        if action is not None:
            shop.lake.done(shop.spec, JobOptions(action=action))
        code, message = refused(shop.lake, at(11).isoformat(), shop.spec)
        assert (code, "another writer" in message, "new target" in message) == ("CUT_CHANGES_MISSING", True, True)


def test_a_source_without_a_change_refuses_the_table(tmp_path: Path) -> None:
    shop = Shop(Lake(tmp_path))
    for shard in SHARDS:
        shop.load(shard, {1: 1})
    shop.commit("eu", (at(1), [("I", 2, 2)]))
    shop.lake.done(shop.spec)
    code, message = refused(shop.lake, at(1).isoformat(), shop.spec)
    assert (code, "source us of s.t" in message) == ("CUT_NOT_COMPLETE", True)
    assert "it has no change yet" in message


def test_a_source_that_is_not_loaded_refuses_the_table(tmp_path: Path) -> None:
    shop = Shop(Lake(tmp_path))
    shop.load("eu", {1: 1})
    shop.commit("eu", (at(1), [("I", 2, 2)]))
    shop.lake.result(shop.spec)
    code, message = refused(shop.lake, "latest", shop.spec)
    assert (code, "source us of s.t can't be shown" in message) == ("CUT_BEFORE_LOAD", True)


def test_a_cut_is_made_verified_repeated_and_dropped_by_command(tmp_path: Path) -> None:
    shop = filled(Lake(tmp_path))
    tables = tmp_path / "metadata" / "tables"
    tables.mkdir(parents=True)
    sources = {shard: {"landing": str(tmp_path / f"landing-{shard}")} for shard in SHARDS}
    roots = {"landing": shop.lake.roots.landing, "lake": shop.lake.roots.lake}
    (tables.parent / "gddl.yaml").write_text(json.dumps({**roots, "sources": sources}))
    row = {"table": "s.t", "keys": ["id"], "settle": "0s", "shards": [*SHARDS]}
    (tables / "rows.yaml").write_text(json.dumps({"source": "crm", "tables": [row]}))
    for number, source in enumerate(("crm", *SHARDS)):  # the row's own source, or one of those that it is loaded from
        (made,), _ = gddl(tmp_path, "as-of", "--source", source, "--at", at(11).isoformat(), "--prefix", f"c{number}")
        path = tmp_path / "lake" / made["tables"][0]["folder"]
        shown = [{name: row[name] for name in ("_source", "id", "v")} for row in read(str(path))]
        assert sorted(shown, key=str) == shop.rows(at(11))
    assert gddl(tmp_path, "as-of", "verify", "c0")[0][0]["equal"] == ["s.t"]
    gddl(tmp_path, "as-of", "--again", "c0", "--prefix", "again")
    assert gddl(tmp_path, "as-of", "drop", "c0")[0] == [{"cut": "c0", "tables": ["s.t"]}]
    _, said = gddl(tmp_path, "as-of", "--source", "crm", "--at", at(30).isoformat(), "--prefix", "later", status=2)
    assert "source eu of s.t" in said
    (tables / "rows.yaml").write_text(json.dumps({"source": "crm", "tables": [{**row, "shards": ["us"]}]}))
    (again,), _ = gddl(tmp_path, "as-of", "--again", "c1", "--prefix", "again_1")  # which --source eu has made
    assert again["tables"][0]["rows"] == len(shop.rows(at(11)))
    _, said = gddl(tmp_path, "as-of", "--source", "eu", "--prefix", "new", status=2)
    assert "there are: crm, us" in said


def test_sources_with_logs_of_their_own_are_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    bank, connector = world(lake, Oracle(), 3)
    an_hour_later(lake, bank, connector, 5)
    single = SPECS[0]
    sharded = replace(
        single, table="s.sharded", source_table=single.table, keys=("_source", *single.keys), shards=("eu",),
        shard_landings={"eu": lake.roots.landing},
    )  # fmt: skip
    lake.done(sharded)
    code, message = refused(lake, "latest", sharded)
    assert (code, "has a log of its own" in message) == ("CUT_TRANSACTIONS_UNKNOWN", True)


@pytest.mark.parametrize(
    ("seed", "soft"),
    [
        (0, False),
        pytest.param(1, True, marks=pytest.mark.deep_on_many),
        *(pytest.param(seed, seed % 2 == 1, marks=pytest.mark.deep) for seed in range(2, 8)),
    ],
)
def test_cuts_at_random_equal_the_sources(engine: LocalPort, seed: int, soft: bool, tmp_path: Path) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable by its seed
    shop = Shop(Lake(tmp_path, port=engine), {"delete": "soft" if soft else "hard"})
    for shard in SHARDS:
        shop.load(shard, {key: chance.randrange(100) for key in range(4)})
    second = 0
    for _ in range(5):
        for shard in chance.sample(SHARDS, chance.randint(1, 2)):
            transactions = []
            for _ in range(chance.randint(1, 3)):
                second += chance.randint(0, 3)
                changes = [(chance.choice("IUUD"), key, chance.randrange(100)) for key in chance.sample(range(8), 2)]
                transactions.append((at(second), changes))
            shop.commit(shard, *transactions)
        if chance.random() < 0.7:
            shop.lake.done(shop.spec)
    for shard in SHARDS:
        shop.commit(shard, (at(second + 10), [("U", 0, 1)]))
    shop.lake.done(shop.spec)
    cuts = shop.cuts()
    for number in range(4):
        time = at(chance.randint(0, second))
        cut = cuts.make(f"cut_{number}", (time + timedelta(microseconds=number)).isoformat())
        rows = cuts.rows(cut, "s.t", "_source", "id", "v", "_gddl")
        live = [{name: row[name] for name in ("_source", "id", "v")} for row in rows if not row["_gddl"].get("deleted")]
        assert live == shop.rows(time)
