"""Jobs on YARN: done, an executor and a driver killed while they work, and gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.site import Site
from tests.cluster.test_jobs import CHANGED, FIRST, KEPT, PACK
from tests.cluster.yarn import YarnCluster, class_path
from tests.harness.waiting import wait_for

pytestmark = [pytest.mark.deep, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[YarnCluster]:
    if request.config.getoption("--tasks") == "one":
        pytest.skip("it takes Spark")
    folder = tmp_path_factory.mktemp("yarn")
    with YarnCluster(folder, class_path(folder)) as running:
        yield running


@pytest.fixture
def names() -> tuple[str, ...]:
    return (*PACK, "spark_orders")


@pytest.fixture
def here(
    tmp_path: Path, cluster: YarnCluster, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.folder))
    made = Site(tmp_path, cluster, names, conf=cluster.conf())
    made.prepare()
    yield made
    wait_for(lambda: cluster.running() == [], "all applications to end")


def test_a_lost_executor_is_replaced(here: Site, cluster: YarnCluster, names: tuple[str, ...]) -> None:
    """YARN starts another container for it, and the pack and a table of Spark are done all the same."""
    here.load(names)
    here.change(names, 1, FIRST)
    with here.run() as run:
        with here.held("held"):
            (first,) = run.wait_at_last()
            cluster.executor(first).kill()
            (second,) = run.wait_at_last(but=[first])
            assert cluster.executor(second).is_running()
        done = run.succeed()
    assert {name: r["tasks"] for name, r in done.items()} == {**dict.fromkeys(PACK, "one"), names[-1]: "many"}
    assert {(r["rows_read"], r["changes_written"]) for r in done.values()} == {(6, 6)}
    assert {name: here.replica(name) for name in names} == dict.fromkeys(names, CHANGED)
    assert {name: here.changes(name) for name in names} == dict.fromkeys(names, KEPT)


def test_a_killed_driver_ends_its_application_and_the_next_run_resumes(
    here: Site, cluster: YarnCluster, names: tuple[str, ...]
) -> None:
    here.load(names)
    here.change(names, 1, FIRST)
    with here.held("held"), here.run() as run:
        run.wait_at_last()
        (application,) = cluster.running()
        run.job().kill()
        status, results, _ = run.end()
    assert (status, results["held"]["error"]["code"]) == (1, "JOB_DIED")
    wait_for(lambda: application in cluster.ended(), "the application of the dead driver to end")
    with here.run() as run:
        run.succeed()
    assert {name: here.replica(name) for name in names} == dict.fromkeys(names, CHANGED)
    assert {name: here.changes(name) for name in names} == dict.fromkeys(names, KEPT)
