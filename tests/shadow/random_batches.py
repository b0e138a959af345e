"""Random batches whose commits are compared with Spark's `MERGE`, broken off and killed at every write, and judged.

    python -m tests.shadow.random_batches --seconds 3600 --write docs/trust.md

plays histories until the time is up or enough batches were compared, prints what it found, and writes it into the
block of the page after each run of a lake. `--seed` draws the same ones again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from airflow_gddl.contract.features.shadow import shadow_folder
from airflow_gddl.contract.result import JobResult, summed_figures
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Step
from spark_jobs.features.shadow import comparison
from spark_jobs.features.shadow.kept import KeptDifferences
from spark_jobs.features.shadow.sides import Sides
from spark_jobs.spark.session import FOR_FEW_ROWS
from spark_jobs.spark.session_settings import SessionSettings
from spark_jobs.tables.places import TaskBounds
from tests.conftest import LocalPort
from tests.harness.examples import drawn
from tests.harness.lake import Lake
from tests.harness.strategies import EVERYTHING, Case, Traits, cases
from tests.oracle import Run
from tests.shadow.dying import AFTER, BEFORE, OF_REPLICA, OF_SHADOW, USUAL, Death, MortalStorage, died
from tests.spark.breaking import Break, Breaker, BrokenOffError
from tests.spark.playing import Stage

MOST = 10_000
TOGETHER = 16
"""Tables of one lake, which share their jobs."""
BEGIN, END = "<!-- shadow: written by tests.shadow.random_batches -->", "<!-- shadow: end -->"
SORTS: dict[str, Traits] = {
    "plain": Traits(),
    "composite": Traits(composite=True, numbered=True, renames=True),
    "partial": Traits(partial=True, ties=False, steps=True),
    "conditions": Traits(conditions=True, renames=True),
    "rescued": Traits(partial=True, rescues=True),
    "keyless": Traits(keyless=True, bad_rows=True),
    "truncates": Traits(truncates=True),
    "generations": Traits(renames=True, reloads=True, most_reloads=3),
    "everything": EVERYTHING,
}
BREAKS = ("plan", "quarantine", "append", "tombstones compared", "tombstones", "replica compared", "replica",
          "history compared", "history", "commit", "committed")  # fmt: skip
"""Steps after which a table is broken off; writes that follow are not made."""
KILLED, BROKEN = 0.2, 0.35
"""Shares of runs of a table that are killed at a write, and that are broken off: 0.2, and 0.15 more."""
DEATHS = 0.015
"""Share of runs of a lake in which the process with Spark is killed, and with it Spark."""
NARROW_RUNS = 3
"""Runs whose files have a narrower type of `n`, where it is widened."""


@dataclass
class Found:
    """What was played.

    Attributes:
        compared: batches whose commit to the replica was compared: lake, table and number.
        options: of compared batches, how many had each.
        counts: figures of the results; of batches that were broken off after their commit, none.
        broken: broken off, by step.
        killed: killed, by write; with Spark, by `Spark: ` and the write.
        wrong: what differs, by table.
    """

    compared: set[str] = field(default_factory=set)
    options: Counter[str] = field(default_factory=Counter)
    counts: dict[str, float] = field(default_factory=dict)
    broken: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    differences: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(self, batch: str, options: Sequence[str]) -> None:
        if batch not in self.compared:
            self.compared.add(batch)
            self.options.update(options)


@dataclass
class Watch:
    """An observer that notes what was compared and then breaks tables off."""

    found: Found
    lake: int
    options: Mapping[str, Sequence[str]]
    breaker: Breaker

    def __call__(self, step: Step) -> None:
        if step.step == "replica compared":
            self.found.note(f"{self.lake} {step.table} {step.batch}", self.options[step.table])
        try:
            self.breaker(step)
        except BrokenOffError:
            self.found.broken[step.step] += 1
            raise


def many_runs(traits: Traits) -> Traits:
    """More runs, since the first of a table is not compared, and full loads in sort `generations` alone."""
    reloads = traits.most_reloads > 1
    return replace(
        traits, min_changes=14, max_changes=36, max_files=12, max_runs=10, reloads=reloads, corrections=False
    )


def histories(seed: int, count: int) -> list[Case]:
    """Tables of all sorts; every third has deletion vectors, every fifth a change feed, and so on."""
    found: list[Case] = []
    for at, traits in enumerate(SORTS.values()):
        each = many_runs(traits)
        made = drawn(cases(each), -(-count // len(SORTS)) + 8, seed + at)[8:]  # Hypothesis begins with the simplest
        found += made if each.reloads else map(one_by_one, made)
    chosen = random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - a repeatable choice
    return [_as_table(number, case) for number, case in enumerate(chosen)]


def one_by_one(case: Case) -> Case:
    """Full loads at first, then a change file a run."""
    files = [file for run in case.runs for file in run.files]
    loads = {file.name: file for file in files if file.kind == "load"}
    changes = [Run((file,)) for file in files if file.kind != "load"]
    return replace(case, runs=((Run(tuple(loads.values())),) if loads else ()) + tuple(changes))


def _as_table(number: int, case: Case) -> Case:
    feed = {"delta.enableChangeDataFeed": "true"} if number % 5 == 0 else {}
    size = "large" if number % 3 == 0 else "small"
    spec = replace(case.spec, table=f"s.t{number:03d}", shadow=True, size=size, table_properties=feed)
    parted = replace(spec, partition_by=("n",))
    if number % 4 == 1 and case.types.get("n") == "int64" and not check_table(parted):
        spec = parted
    return replace(case, spec=spec)


def is_widened(case: Case) -> bool:
    """Whether the first files have a narrower type of `n`."""
    return case.types.get("n") == "int64" and not case.spec.partition_by and int(case.spec.table[-3:]) % 2 == 0


def options_of(case: Case) -> list[str]:
    """What the batches of a table have."""
    spec, files = case.spec, [file for run in case.runs[1:] for file in run.files]
    columns = {tuple(file.columns) for file in files}
    holds = {
        "deletion vectors": spec.size == "large", "change feed": bool(spec.table_properties),
        "ranges of keys": bounds_of(spec.table).batch < 0,
        "partitions": bool(spec.partition_by), "widened types": is_widened(case), "new columns": len(columns) > 1,
        "history": spec.history, "soft deletes": spec.delete == "soft", "no keys": not spec.keys,
        "key changes": spec.before_image_prefix is not None, "partial updates": spec.columns_to_update is not None,
        "truncates": spec.truncate == "apply", "filters": spec.where is not None,
        "generations": any(file.kind == "load" for file in files),
    }  # fmt: skip
    return [name for name, has in holds.items() if has]


def bounds_of(table: str) -> TaskBounds:
    """Every eighth table has large batches, which tasks merge by ranges of keys."""
    usual = TaskBounds()
    return replace(usual, batch=-1) if int(table[-3:]) % 8 == 3 else usual


@dataclass
class Lane:
    """How far the lane is; saved, since its process dies now and then.

    Attributes:
        until: seconds since 1970.
        number: of the lake that is played.
        run: of its tables, which is played.
        landed: its files are there.
        deaths: see `DEATHS`.
        died: the process that played this run died, so that the next one does not.
        commit: of the code that is tested.
    """

    seed: int
    until: float
    most: int = MOST
    deaths: float = DEATHS
    found: Found = field(default_factory=Found)
    number: int = 0
    run: int = 0
    landed: bool = False
    died: bool = False
    commit: str = ""

    @property
    def is_done(self) -> bool:
        return time.time() > self.until or len(self.found.compared) >= self.most or bool(self.found.wrong)

    def play(self, port: LocalPort, root: Path, save: Callable[[], object], death: Death | None) -> None:
        """Play lakes until it is done.

        Args:
            save: called when `self` has changed in a way that another process needs to know.
            death: of this process; null: it does not die.
        """
        while not self.is_done:
            folder = root / f"lake-{self.number}"
            chosen = histories(self.seed + 1000 * self.number, TOGETHER)
            _Lake(self, Stage(port, Lake(folder), chosen, read=port.read)).play(save, death)
            if self.found.wrong:  # whoever looks into it needs the tables
                save()
                break
            shutil.rmtree(folder, ignore_errors=True)
            self.number, self.run, self.landed = self.number + 1, 0, False
            save()


@dataclass
class _Lake:
    """The tables of a lake."""

    lane: Lane
    stage: Stage

    def play(self, save: Callable[[], object], death: Death | None) -> None:
        lane, cases_ = self.lane, self.stage.cases
        options = {case.spec.table: options_of(case) for case in cases_}
        for run in range(lane.run, max(len(case.runs) for case in cases_)):
            if time.time() > lane.until or len(lane.found.compared) >= lane.most:
                break
            active = self.stage.playing(run)
            if not lane.landed:
                self._land(active, run)
                lane.landed = True
                save()
                self._die_and_break(active, run, options)
            if death is not None:
                self._arm(death, run)
            self._end(active, run, options)
            if death is not None:
                death.is_armed = False
            lane.run, lane.landed, lane.died = run + 1, False, False
            save()
            _forget_tables(self.stage.port)
        self._blame_differences()

    def _land(self, active: Sequence[Case], run: int) -> None:
        for case in active:
            narrow = {file.name for one in case.runs[:NARROW_RUNS] for file in one.files} if is_widened(case) else set()
            for file in case.runs[run].files:
                types = {**case.types, "n": "int32"} if file.name in narrow else case.types
                self.stage.lake.land(case.spec, Run((file,)), types)

    def _die_and_break(self, active: Sequence[Case], run: int, options: Mapping[str, Sequence[str]]) -> None:
        """A run of some tables that ends before it is done."""
        lane, lake, port = self.lane, self.stage.lake, self._port(run)
        breaks = {}
        for case in active:
            chance = self._chance(run, case.spec.table)
            fate = chance.random()
            if fate < KILLED and run > 0:
                kind, after = _write(chance)
                job = port.tiered(lake.job([case.spec], run_id=f"dies-{run}"))
                lane.found.killed[died(job, kind, after=after)] += 1
            elif KILLED <= fate < BROKEN:
                breaks[case.spec.table] = Break(chance.choice(BREAKS))
        specs = [case.spec for case in active if case.spec.table in breaks]
        watch = Watch(lane.found, lane.number, options, Breaker(breaks))
        results = lake.results(port, lake.job(specs, run_id=f"run-{run}"), watch)
        self._count(list(results.values()))

    def _end(self, active: Sequence[Case], run: int, options: Mapping[str, Sequence[str]]) -> None:
        """The run of all tables, which is done, and is judged."""
        lane, lake, stage = self.lane, self.stage.lake, self.stage
        watch = Watch(lane.found, lane.number, options, Breaker({}))
        results = lake.results(self._port(run), lake.job([case.spec for case in active], run_id=f"again-{run}"), watch)
        self._count(list(results.values()))
        stage.blame_failures(f"in run {run}", results)
        for case in active:
            if case.spec.table not in stage.wrong:
                stage.judge(case, run, None)

    def _port(self, run: int) -> LocalPort:
        """First loads are not compared, so that they need no Spark."""
        port = LocalPort("one")
        port.runtime = self.stage.port.runtime
        return self.stage.port if run else port

    def _blame_differences(self) -> None:
        lane, lake = self.lane, self.stage.lake
        for case in self.stage.cases:
            for one in KeptDifferences(Storage(), shadow_folder(lake.roots.lake, case.spec)).open():
                lane.found.differences += 1
                self.stage.blame(case, "shadow", [str(one)])
        if self.stage.wrong:
            lane.found.wrong.append(self.stage.report())

    def _count(self, results: Sequence[JobResult]) -> None:
        for result in results:
            self.lane.found.counts = summed_figures((self.lane.found.counts, result.features))

    def _arm(self, death: Death, run: int) -> None:
        chance = self._chance(run, "Spark")
        if run > 0 and not self.lane.died and chance.random() < self.lane.deaths:
            kind = chance.choice((*BEFORE, *AFTER, *OF_SHADOW, *OF_SHADOW, *OF_SHADOW))
            death.kind, death.after, death.is_armed = kind, chance.random() < 0.5, True

    def _chance(self, run: int, name: str) -> random.Random:
        return random.Random(f"{self.lane.seed} {self.lane.number} {run} {name}")  # noqa: S311 - a repeatable choice


def _write(chance: random.Random) -> tuple[str, bool]:
    """A write to die at, and whether after it; four of five before the replica's commit is made."""
    if chance.random() < 0.8:
        kind = chance.choice((*BEFORE, *USUAL, *USUAL))
        return kind, kind != OF_REPLICA and chance.random() < 0.5
    kind = chance.choice((OF_REPLICA, *AFTER))
    return kind, kind == OF_REPLICA or chance.random() < 0.5


def _forget_tables(port: LocalPort) -> None:
    """Delta keeps each table that it has seen for an hour."""
    if port.spark.is_started:
        java = port.spark.for_table()._jvm
        java.org.apache.spark.sql.delta.DeltaLog.clearCache()


def read_by_kernel(patch: pytest.MonkeyPatch) -> None:
    """Let Spark read tables for comparisons by Delta's Kernel, which replays a log without jobs.

    What changes a table stays with Delta's usual reader, since Kernel refuses it.
    """
    patch.setattr(comparison, "FOR_FEW_ROWS", {**FOR_FEW_ROWS, _READER: "STRICT"})
    clone = Sides.clone

    def by_usual_reader(self: Sides) -> None:
        self.spark.conf.set(_READER, "AUTO")
        clone(self)
        self.spark.conf.set(_READER, "STRICT")

    patch.setattr(Sides, "clone", by_usual_reader)


def run(seed: int, seconds: float, most: int = MOST) -> Found:
    """Play lakes in this process until time is up, enough was compared, or something differs."""
    port = LocalPort("many")
    port.runtime = replace(port.runtime, bounds_of=bounds_of)
    lane = Lane(seed, time.time() + seconds, most)
    with tempfile.TemporaryDirectory(prefix="gddl-shadow-") as folder:
        lane.play(port, Path(folder), silent_save, None)
    return lane.found


def silent_save() -> None:
    """Save nothing."""


_JAVA = "-XX:MetaspaceSize=512m -XX:MinHeapFreeRatio=60 -XX:NewRatio=1"
"""A heap that grows little by little is collected again and again."""
_SETTINGS = {
    **FOR_FEW_ROWS,
    "spark.databricks.delta.history.metricsEnabled": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
    # Spark's side writes files again: vectors take it nine more jobs, and only those of our side are tested.
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
    "spark.sql.ui.explainMode": "simple", "spark.default.parallelism": "1",
    **{f"spark.{name}": "1" for name in ("ui.retainedJobs", "ui.retainedStages", "sql.ui.retainedExecutions")},
    # A machine that stands still for minutes loses no executor.
    "spark.executor.heartbeatInterval": "1h", "spark.network.timeout": "24h",
}  # fmt: skip
_LASTING = 1200
"""Seconds of which it pays to compile Spark well."""
_READER = "spark.databricks.delta.v2.enableMode"
_STATE, _DEATH = "lane.json", "death.txt"
_PAUSE = 60.0
"""Seconds between writes of the page."""


def play_saved(root: Path) -> None:
    """Carry a saved lane on in a process with a Spark of its own, which dies now and then."""
    lane = saved_lane(root)
    death = Death("", after=False, told=(root / _DEATH).write_text, is_armed=False)
    death.plant()
    lasting = lane.until - time.time() > _LASTING
    spark = LazySpark(SessionSettings(cores=1, memory="4g", brief=True, lasting=lasting, extra=_SETTINGS))
    read_by_kernel(pytest.MonkeyPatch())
    port = LocalPort("many")
    port.spark = spark
    port.runtime = replace(port.runtime, spark=spark, storage=MortalStorage(death), bounds_of=bounds_of)

    def save() -> None:
        save_lane(lane, root)
        found, place = lane.found, f"seed {lane.seed}, lake {lane.number}, run {lane.run}"
        print(f"{time.strftime('%X')} {place}: {len(found.compared)} compared, {found.differences} differ", flush=True)

    try:
        lane.play(port, root, save, death)
    finally:
        spark.stop()


def save_lane(lane: Lane, root: Path) -> None:
    new = root / f"{_STATE}.new"
    found = {**vars(lane.found), "compared": sorted(lane.found.compared)}
    new.write_text(json.dumps({**vars(lane), "found": found}))
    new.replace(root / _STATE)


def saved_lane(root: Path) -> Lane:
    values = json.loads((root / _STATE).read_text())
    found = Found(**values.pop("found"))
    counters = {name: Counter(getattr(found, name)) for name in ("options", "broken", "killed")}
    return Lane(**values, found=replace(found, compared=set(found.compared), **counters))


def play_by_processes(lane: Lane, root: Path) -> Found:
    """Play a lane by a process after the other, each until it dies.

    Args:
        root: its folder, in which its state stays.
    """
    root.mkdir(parents=True, exist_ok=True)
    save_lane(lane, root)
    while True:
        shutil.rmtree(root / "tmp", ignore_errors=True)
        (root / "tmp").mkdir()
        command = [sys.executable, "-P", "-m", "tests.shadow.random_batches", "--carry-on", str(root)]
        env = {**os.environ, "TMPDIR": str(root / "tmp"), "JAVA_TOOL_OPTIONS": _JAVA}
        status = subprocess.run(command, check=False, env=env).returncode
        shutil.rmtree(root / "tmp", ignore_errors=True)
        lane = saved_lane(root)
        if status == 0:
            return lane.found
        if status != -signal.SIGKILL or not (root / _DEATH).exists():
            raise SystemExit(f"a process of the lane ended with {status}")
        lane.found.killed[f"Spark: {(root / _DEATH).read_text()}"] += 1
        (root / _DEATH).unlink()
        lane.died = True
        save_lane(lane, root)


def play_side_by_side(lanes: Sequence[Lane], folder: Path, tell: Callable[[], object]) -> None:
    """Play lanes at once, each in a folder of its seed.

    Args:
        tell: called now and then, and at the end.
    """
    with ThreadPoolExecutor(len(lanes)) as pool:
        played = [pool.submit(play_by_processes, lane, folder / str(lane.seed)) for lane in lanes]
        while wait(played, timeout=_PAUSE).not_done:
            tell()
    tell()
    for one in played:
        one.result()


def saved_lanes(folder: Path) -> list[Lane]:
    """All lanes of a folder, of earlier calls, too."""
    return [saved_lane(state.parent) for state in sorted(folder.glob(f"*/{_STATE}"))]


def total(lanes: Sequence[Lane]) -> Found:
    """What lanes found together."""
    found = Found()
    for lane in lanes:
        one = lane.found
        found.compared |= {f"{lane.seed} {batch}" for batch in one.compared}
        found.counts = summed_figures((found.counts, one.counts))
        for mine, its in ((found.options, one.options), (found.broken, one.broken), (found.killed, one.killed)):
            mine.update(its)
        found.differences += one.differences
        found.wrong += one.wrong
    return found


def block(lanes: Sequence[Lane]) -> str:
    """The block of the page."""
    found = total(lanes)
    broken, killed = sum(found.broken.values()), found.killed.total() - found.killed["no write"]
    spark = sum(count for what, count in found.killed.items() if what.startswith("Spark: "))
    writes = len({what.removeprefix("Spark: ") for what in found.killed} - {"no write"})
    missed = int(found.counts.get("shadow.not_compared.already_committed", 0))
    options = ", ".join(f"{name} {count:,}" for name, count in found.options.most_common())
    seeds: dict[str, list[str]] = {}
    for lane in lanes:
        seeds.setdefault(lane.commit, []).append(str(lane.seed))
    played = "; ".join(f"seed {' and '.join(some)}, commit {commit}" for commit, some in seeds.items())
    return (
        f"{BEGIN}\n{len(found.compared):,} random batches compared, {found.differences:,} differences; runs killed by "
        f"SIGKILL {killed:,} times at {writes:,} places, {spark:,} of them with Spark, and broken off {broken:,} times "
        f"at {len(found.broken):,} steps; {missed:,} more batches had been committed before the run that would have "
        f"compared them; {played}.\n\nOf these batches: {options}.\n{END}"
    )


def write(page: Path, text: str) -> None:
    """Replace the block of a page."""
    content = page.read_text(encoding="utf-8")
    new, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: text, content, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{page} has no block of shadow, or several")
    page.write_text(new, encoding="utf-8")


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--batches", type=int, default=MOST)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--lanes", type=int, default=1, help="processes side by side, with this seed and the next ones")
    parser.add_argument("--folder", type=Path, help="keeps what was found, and adds up what is there")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--carry-on", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.carry_on is not None:
        play_saved(given.carry_on)
        return 0
    commit, until = _commit(), time.time() + given.seconds
    most = -(-given.batches // given.lanes)
    lanes = [Lane(given.seed + number, until, most, commit=commit) for number in range(given.lanes)]
    print(f"seed {', '.join(str(lane.seed) for lane in lanes)}, commit {commit}", flush=True)
    with tempfile.TemporaryDirectory(prefix="gddl-shadow-") as temporary:
        folder = given.folder or Path(temporary)

        def tell() -> None:
            if given.write is not None and (found := total(saved_lanes(folder))).compared and not found.wrong:
                write(given.write, block(saved_lanes(folder)))

        play_side_by_side(lanes, folder, tell)
        found = total(saved_lanes(folder))
        print("\n".join([block(saved_lanes(folder)), f"{found.counts}", f"{dict(found.killed)}", *found.wrong]))
    return 1 if found.wrong or not found.compared else 0


if __name__ == "__main__":
    os.environ["GDDL_SETTLE"] = "0s"
    sys.exit(main(sys.argv[1:]))
