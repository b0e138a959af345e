"""One Airflow for all end-to-end tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_gddl.metadata.loading import load
from airflow_gddl.topology.pipelines import arrange, pools
from devtools.standalone import supervisor
from devtools.standalone.supervisor import Standalone
from tests.e2e.site import Site, order
from tests.e2e.webhook import Webhook, listening

if importlib.util.find_spec("airflow") is None:
    collect_ignore_glob = ["test_*.py"]

SETTINGS = """\
landing: ../landing
lake: ../lake
defaults: {schedule: null}
tiers:
  solo: {tables_per_job: 1, slots: 1}
  spark: {tasks: many, max_files_per_batch: 1}
  pack: {airflow: pack}
  group: {airflow: group}
  mapped: {airflow: mapped}
  table: {airflow: table}
"""


# The placement is stored soon, rather than once a minute.
PLUGIN = """\
from airflow_gddl.plugins import pools
from airflow_gddl.plugins.pools import GddlPlugin

pools.EVERY_SECONDS = 2.0
"""


def populate(site: Site) -> None:
    # Airflow finds the plugin by the installed package, where that is this one; told twice, it takes the first.
    plugins = site.running.request.home.root / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    (plugins / "gddl.py").write_text(PLUGIN)
    (site.metadata / "tables").mkdir(parents=True)
    (site.metadata / "gddl.yaml").write_text(SETTINGS)
    site.rows("real", "{table: real.orders, keys: [id], size: spark}", source="real")
    site.rows("shop", "{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}", source="shop")
    urgency = ("low", "normal", "high", "critical")
    site.rows(
        "queue", *(f"{{table: queue.{p}, keys: [id], size: solo, priority: {p}}}" for p in urgency), source="queue"
    )
    views = (
        f"{{table: viewed.{view}_{name}, keys: [id], size: {view}}}"
        for view in ("pack", "group", "mapped", "table")
        for name in "ab"
    )
    site.rows("viewed", *views, source="viewed")
    own = "keys: [id], size: solo, schedule: null"
    tells = ("{table: tell.broken, keys: [id], size: solo}",)
    site.rows("tell", *tells, source="tell")
    site.rows("wait", f"{{table: wait.a, {own}, depends_on: [wait.b]}}", f"{{table: wait.b, {own}}}", source="wait")


@pytest.fixture(scope="package")
def webhook() -> Iterator[Webhook]:
    with listening() as server:
        yield server


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory, webhook: Webhook) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("e2e")
    running = Standalone(order(root, webhook.connection))
    made = Site(root, running)
    populate(made)
    with running:
        running.begin()
        running.start()
        running.wait_ready()
        catalog = load(made.metadata, {})
        assert catalog.problems == ()
        dags = arrange(catalog.tables, catalog.tiers).pipelines
        made.runs.create_pools(pools(dags))
        made.runs.wait_for([dag.dag_id for dag in dags])
        yield made
    assert not any(mark.endswith(str(running.request.home.root)) for mark in supervisor.marks()), "a process is left"


@pytest.fixture(scope="package")
def pictures() -> Path:
    folder = Path(__file__).with_name("pictures")
    folder.mkdir(exist_ok=True)
    return folder
