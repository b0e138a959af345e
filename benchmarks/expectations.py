"""What five expectations of a row cost: equal files with them and without, in turn, in new lakes, without Spark.

    python benchmarks/expectations.py [--scale 1] [--rounds 5] [--seed 1]

CPU seconds, since they say more than the clock of a machine that others use. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import this_engine
import workload
from measuring import WrongResultError, print_figures, say
from workload import KEY, TABLE, Folders, Workload

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.metadata.loading import load
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.spark.session import SessionSettings

_ROWS, _FILES, _CHANGES = 1_000_000, 2, 50_000
RULES = {
    "known_status": "status in ('open', 'paid', 'packed', 'shipped', 'returned')",
    "some_quantity": "quantity between 0 and 1000000",
    "has_customer": "customer is not null and length(customer) > 0",
    "price_or_amount": "price is not null or amount > 0",
    "after_2000": "updated_at > '2000-01-01'",
}


@dataclass(frozen=True)
class Cost:
    """CPU seconds of the full load and of the batches after it."""

    load: float
    changes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and changes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    args = parser.parse_args()
    counts = [max(1000, round(count * args.scale)) for count in (_ROWS, _CHANGES)]
    work = Workload(rows=counts[0], files=_FILES, changes_per_file=counts[1], seed=args.seed)
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
        folders = Folders(Path(folder, "made"))
        workload.write(work, folders)
        specs = {with_rules: _spec(Path(folder, str(with_rules)), with_rules) for with_rules in (False, True)}
        found: dict[bool, list[Cost]] = {False: [], True: []}
        for number in range(args.rounds + 1):
            for with_rules, spec in specs.items():
                cost = _cost(spec, work, folders, Path(folder, "lake"))
                if number:  # the first round loads libraries
                    found[with_rules].append(cost)
    _report(work, found)


def _spec(folder: Path, with_rules: bool) -> TableSpec:
    """The row as `gddl validate` reads it."""
    row: dict[str, object] = {"table": TABLE, "keys": [KEY], "size": "large"}
    if with_rules:
        row["expect"] = {name: {"rule": rule, "on": "warn"} for name, rule in RULES.items()}
    (folder / "tables").mkdir(parents=True)
    (folder / "gddl.yaml").write_text("landing: /landing\nlake: /lake\n")
    (folder / "tables" / "bench.json").write_text(json.dumps({"source": "bench", "tables": [row]}))
    loaded = load(folder, {})
    if loaded.problems:
        raise WrongResultError(str(loaded.problems[0]))
    return replace(loaded.tables[0], settle="0s")


def _cost(spec: TableSpec, work: Workload, made: Folders, lake: Path) -> Cost:
    """
    Raises:
        WrongResultError: a job did not read and check all rows.
    """
    landing = lake / "landing"
    landed = landing.joinpath(*TABLE.split("."))
    landed.mkdir(parents=True)
    seconds = []
    deleted = work.files * round(work.changes_per_file * work.mix["D"])
    for files, rows, deletes in ((made.load_files(), work.rows, 0), (made.change_files(), work.changes, deleted)):
        for file in files:
            (landed / file.name).hardlink_to(file)
        before = _cpu()
        result = _run(spec, landing, lake / "lake")
        seconds.append(_cpu() - before)
        checked = {tally.checked for tally in result.expectations}
        if (result.status, result.rows_read, checked) != (
            "succeeded",
            rows,
            {rows - deletes} if spec.expect else set(),
        ):
            raise WrongResultError(f"{rows} rows expected: {result}")
    shutil.rmtree(lake)
    return Cost(*seconds)


def _run(spec: TableSpec, landing: Path, lake: Path) -> JobResult:
    roots = Roots(landing=str(landing), lake=str(lake))
    job = JobSpec(run_id="benchmark", roots=roots, tables=(spec,), tiers={"large": this_engine.WITHOUT_SPARK})
    shown: list[JobResult] = []
    spark = LazySpark(SessionSettings(cores=1, memory="1g", single=True))
    run_job(job, Runtime(storage=Storage(), spark=spark), shown.append)
    return shown[0]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _report(work: Workload, costs: dict[bool, list[Cost]]) -> None:
    figures: dict[str, float] = {}
    for name in ("load", "changes"):
        without, with_rules = (
            statistics.median(getattr(cost, name) for cost in costs[which]) for which in (False, True)
        )
        figures |= {f"{name}_cpu_seconds": round(without, 2), f"{name}_cpu_seconds_with_rules": round(with_rules, 2),
                    f"{name}_more_percent": round(100 * (with_rules / without - 1), 1)}  # fmt: skip
        say(f"{name}: {without:.2f} s of CPU, with {len(RULES)} expectations {with_rules:.2f} s")
    print_figures({"rows": work.rows, "changes": work.changes, **figures}, "load_cpu_seconds", "changes_cpu_seconds")


if __name__ == "__main__":
    main()
