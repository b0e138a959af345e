"""Jobs on a Spark standalone cluster: done, slowed down, killed and gone on with."""

from __future__ import annotations

import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.site import Site, packed_environment
from tests.cluster.standalone import Cluster
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.deep

PACK = ("a", "b", "c", "held")
LOADED = {0: "load 0", 1: "load 1", 2: "load 2"}
FIRST = [("U", 0, "first"), ("D", 1, None), ("I", 7, "new")]
CHANGED = {0: "first", 2: "load 2", 7: "new"}
KEPT = sorted([("R", 0), ("R", 1), ("R", 2), ("U", 0), ("D", 1), ("I", 7)])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.config.getoption("--tasks") == "one":
        pytest.skip("it takes Spark")
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def site(root: Path, cluster: Cluster, *names: str, **more: object) -> Site:
    made = Site(root, cluster, names, **more)  # type: ignore[arg-type]  # fields of the site, by name
    made.prepare()
    return made


def test_a_table_moves_from_a_lost_executor_to_another(tmp_path: Path, cluster: Cluster) -> None:
    """The worker process that had its executor dies, too; the pack is done all the same."""
    here = site(tmp_path, cluster, *PACK)
    here.load(PACK)
    here.change(PACK, 1, FIRST)
    with here.run() as run:
        with here.held("held"):
            (first,) = run.wait_at_last()
            (application,) = cluster.running()
            gone, executor = cluster.executor(first)
            cluster.kill_alone(gone)
            executor.kill()
            (second,) = run.wait_at_last(but=[first])
            assert cluster.executor(second)[0] != gone
        done = run.succeed()
    cluster.start_worker(int(gone.rpartition("-")[2]))
    assert {(name, r["tasks"], r["rows_read"], r["changes_written"]) for name, r in done.items()} == {
        (name, "one", 6, 6) for name in PACK
    }
    assert {name: here.replica(name) for name in PACK} == dict.fromkeys(PACK, CHANGED)
    assert {name: here.changes(name) for name in PACK} == dict.fromkeys(PACK, KEPT)
    (log,) = (tmp_path / "lake" / "_gddl" / "logs").rglob("*.log")
    assert f"GDDL-APPLICATION {application}" in log.read_text().splitlines()
    page = f"http://127.0.0.1:{cluster.web}/app/?appId={application}"
    assert "Executor Summary" in urllib.request.urlopen(page, timeout=10).read().decode()


def test_two_tasks_never_work_on_one_table(tmp_path: Path, cluster: Cluster) -> None:
    """Spark starts a second task for the one that takes long; one of them does the work, both tell of it.

    Their Python is that of an archive which they unpacked.
    """
    wait_for(lambda: cluster.state()["aliveworkers"] == 2, "both workers")
    speculation = {"multiplier": 1.1, "quantile": 0.1, "interval": "100ms", "minTaskRuntime": "100ms"}
    conf = {"spark.speculation": True, **{f"spark.speculation.{name}": value for name, value in speculation.items()}}
    here = site(tmp_path, cluster, *PACK, conf=conf, own={"archive": str(packed_environment(tmp_path))})
    here.load(PACK)
    with here.run() as run:
        with here.held("held"):
            both = run.wait_at_last(tasks=2)
            assert len(set(both)) == 2
            for number in both:
                (daemon,) = cluster.executor(number)[1].children()
                assert daemon.cmdline()[0] == "./environment/bin/python"
        done = run.succeed()
    assert {(r["status"], r["rows_read"], r["changes_written"]) for r in done.values()} == {("succeeded", 3, 3)}
    assert {name: here.replica(name) for name in PACK} == dict.fromkeys(PACK, LOADED)
    commits = list((Path(here.layout("held").changes) / "_delta_log").glob("*.json"))
    assert len(commits) == len(list((Path(here.layout("a").changes) / "_delta_log").glob("*.json")))


def test_stopped_job_and_killed_driver_resume(tmp_path: Path, cluster: Cluster) -> None:
    """Also a single table on the other engine, beside the pack."""
    names = (*PACK, "spark_orders")
    here = site(tmp_path, cluster, *names)
    here.load(names)
    with here.held("held"):
        with here.run() as run:
            run.wait_at_last()
            run.stop(signal.SIGTERM)
            status, results, _ = run.end()
        assert status == 128 + signal.SIGTERM
        assert results["held"]["error"]["code"] == results["spark_orders"]["error"]["code"] == "JOB_CANCELLED"
        wait_for(lambda: cluster.running() == [], "the application to end on the master")
        here.change(PACK, 1, FIRST)
        with here.run() as run:
            run.wait_at_last()
            run.job().kill()
            status, results, _ = run.end()
        assert (status, results["held"]["error"]["code"]) == (1, "JOB_DIED")
        wait_for(lambda: cluster.running() == [], "the application of the dead driver to end")
    here.change(["spark_orders"], 1, FIRST)
    with here.run() as run:
        done = run.succeed()
    assert (done["held"]["rows_read"], done["spark_orders"]["tasks"]) == (6, "many")
    assert {name: here.replica(name) for name in names} == dict.fromkeys(names, CHANGED)
    assert {name: here.changes(name) for name in names} == dict.fromkeys(names, KEPT)


def test_incomplete_executors_are_reported_before_any_write(tmp_path: Path, cluster: Cluster) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    here = site(tmp_path, cluster, "a", "b", own={"python": str(bare)})
    here.load(["a", "b"])
    with here.run() as run:
        status, results, _ = run.end()
    assert status == 1
    assert {r["error"]["code"] for r in results.values()} == {"EXECUTOR_UNFIT"}
    assert "gddl bundle" in results["a"]["error"]["message"]
    assert not (tmp_path / "lake" / "s").exists()


def test_small_cluster_is_awaited_and_reported(tmp_path: Path, cluster: Cluster) -> None:
    here = site(tmp_path, cluster, "a", memory="64g", own={"start_timeout": "5s"})
    here.load(["a"])
    with here.run() as run:
        status, results, _ = run.end()
    assert (status, results["a"]["error"]["code"]) == (75, "NO_EXECUTORS")
    assert not (tmp_path / "lake" / "s").exists()
    wait_for(lambda: cluster.running() == [], "the application to end")
