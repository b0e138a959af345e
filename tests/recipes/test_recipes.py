"""Every recipe of docs/recipes does what its page says: its rows, files, commands and results, one after the other.

Marks beside those of the README: `landed: PATH` is a file of the CDC service, shown as CSV and landed as parquet;
`rows: PATH` is what a table of the lake then holds, in these columns; `sql` runs in a PostgreSQL, whose connection is
GDDL_SOURCE_CRM; `messages: TOPIC` are sent to a Kafka, whose connection is GDDL_SOURCE_KAFKA;
`endpoint` and `mapping` are settings as
`gddl onboard` prints them; `dag: NAME` is a DAG file that Airflow parses.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.metadata.loading import load
from airflow_gddl.onboarding.plan import endpoint_settings, table_mapping
from tests.delta_rs.postgres import postgres
from tests.kafka.broker import Broker, broker
from tests.readme.walk import ROOT, WITHOUT_SPARK, Block, Walk, blocks

RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
ROOTS = "landing: ../landing\nlake: ../lake\n"
TYPES = {"AR_H_CHANGE_SEQ": pa.string(), "dms_timestamp": pa.timestamp("us")}
PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
dags = {dag.dag_id: [task.task_id for task in dag.tasks] for dag in bag.dags.values()}
print(json.dumps({"errors": bag.import_errors, "dags": dags}))
"""


def land(path: Path, text: str) -> None:
    """The rows as DMS writes them: empty fields are null, the sequence is text."""
    options = pa_csv.ConvertOptions(column_types=TYPES, strings_can_be_null=True, null_values=[""])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa_csv.read_csv(io.BytesIO(text.encode()), convert_options=options), path)


def assert_rows(path: Path, text: str) -> None:
    """The table holds these rows, whatever their order; a dotted column is a field of a struct."""
    shown = list(csv.DictReader(io.StringIO(text)))
    found = DeltaTable(path).to_pyarrow_table().flatten().to_pylist()
    held = [{name: "" if row[name] is None else str(row[name]) for name in shown[0]} for row in found]
    assert sorted(held, key=str) == sorted(shown, key=str)


def assert_parsed(folder: Path, name: str, text: str) -> None:
    """Airflow parses the DAG file, and it has the DAG that its name says."""
    dags = folder / "recipe_dags"
    dags.mkdir()
    (dags / name).write_text(text)
    environ = {**os.environ, "AIRFLOW_HOME": str(folder / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    command = [sys.executable, "-c", PARSE, str(dags)]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["errors"] == {}
    assert list(answer["dags"]) == [Path(name).stem]
    assert answer["dags"][Path(name).stem]


def send(kafka: Broker, topic: str, text: str) -> None:
    """A line for each message: its key, and behind a tab its value; `null` is a tombstone."""
    from confluent_kafka import Producer  # noqa: PLC0415 - one recipe needs it

    producer = Producer({"bootstrap.servers": kafka.address, "allow.auto.create.topics": "true"})
    for line in text.splitlines():
        key, _, value = line.partition("\t")
        producer.produce(topic, None if value == "null" else value.encode(), key.encode())
    assert producer.flush(60) == 0


def take(walk: Walk, block: Block, source: sa.Engine | None, kafka: Broker | None) -> None:
    """A block of a recipe.

    Args:
        source: where its SQL runs; null: it has none.
        kafka: where its messages are sent; null: it has none.
    """
    if block.what == "sql" and source is not None:
        with source.begin() as connection:
            connection.execute(sa.text(block.text))
    elif block.what == "messages" and kafka is not None:
        send(kafka, block.name, block.text)
    elif block.what == "landed":
        land(walk.folder / "landing" / block.name, block.text)
    elif block.what == "rows":
        assert_rows(walk.folder / "lake" / block.name, block.text)
    elif block.what == "endpoint":
        assert json.loads(block.text) == endpoint_settings("s3://my-landing/dms")
    elif block.what == "mapping":
        assert json.loads(block.text) == table_mapping(load(walk.folder / "metadata", {}).tables)
    elif block.what == "dag":
        assert_parsed(walk.folder, block.name, block.text)
    else:
        assert block.what in ("file", "run", "shown"), f"no mark is called {block.what}"
        list(walk.take(block))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_the_recipe_works(page: Path, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "gddl.yaml").write_text(ROOTS)
    marked = blocks(page.read_text())
    kinds = {block.what for block in marked}
    assert page.stem == "index" or {"file", "run", "rows"} <= kinds
    assert page.stem == "index" or kinds & {"landed", "messages", "sql"}
    settings = {"auto.create.topics.enable": "true"}
    with (
        postgres(settings="wal_level = logical") if "sql" in kinds else nullcontext() as source,
        broker(tmp_path / "broker", settings) if "messages" in kinds else nullcontext() as kafka,
    ):
        url = {} if source is None else {"GDDL_SOURCE_CRM": source.url.render_as_string(hide_password=False)}
        url |= {} if kafka is None else {"GDDL_SOURCE_KAFKA": json.dumps({"bootstrap.servers": kafka.address})}
        kept = (*WITHOUT_SPARK, *url)
        walk = Walk(tmp_path, Path(sys.executable).parent, environ={**os.environ, **url}, kept=kept)
        for block in marked:
            take(walk, block, source, kafka)


def test_every_recipe_is_in_the_gallery() -> None:
    gallery = (ROOT / "docs" / "recipes" / "index.md").read_text()
    for page in RECIPES:
        assert page.stem == "index" or f"]({page.name})" in gallery
