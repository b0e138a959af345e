"""The rows that a sensor decides by and those that a load uses, on machines whose metadata is not equally new."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from airflow_gddl import configuration
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.operators.execution import agreed
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Question, observe
from tests.airflow.stage import Stage

PACK = "gddl_pack.shop.small.1"
LOG = logging.getLogger(__name__)
OLD = "{table: shop.a, keys: [id]}"
MASKED = "{table: shop.a, keys: [id], mask: {email: hash}}"
OTHER = "{table: shop.b, keys: [id]}"


def machine(root: Path, age: float, *rows: str) -> str:
    """A metadata folder as one machine has it; its files were last modified `age` seconds ago."""
    (root / "tables").mkdir(parents=True, exist_ok=True)
    lake = root.parent
    files = {"gddl.yaml": f"landing: {lake}/landing\nlake: {lake}/lake\n"}
    files["tables/shop.yaml"] = "tables:\n" + "".join(f"  - {row}\n" for row in rows)
    for name, text in files.items():
        (root / name).write_text(text)
        moment = (root / name).stat().st_mtime - age
        os.utime(root / name, (moment, moment))
    return str(root)


def document(metadata: str) -> PipelineDocument:
    found = configuration.compiled_metadata(metadata).pipeline(PACK)
    assert found is not None
    return found


def decided(metadata: str) -> PipelineWork:
    return observe(document(metadata), Question(run="r", now="2026-01-01T00:00:00.000000+00:00"))


@pytest.fixture
def landed(stage: Stage) -> Path:
    stage.land("shop.a")
    stage.land("shop.b")
    return stage.root


def test_equal_rows_are_used_as_they_are(landed: Path) -> None:
    sensor, worker = machine(landed / "sensor", 60, OLD), machine(landed / "worker", 900, OLD)
    work = decided(sensor)
    assert agreed(worker, document(worker), work, LOG) == (document(worker), work)


def test_a_worker_with_older_metadata_refuses_to_load(landed: Path) -> None:
    sensor, worker = machine(landed / "sensor", 60, MASKED, OTHER), machine(landed / "worker", 900, OLD)
    with pytest.raises(RetriableError, match=r"METADATA_OUTDATED.*shop\.a, shop\.b \(no row\)"):
        agreed(worker, document(worker), decided(sensor), LOG)


def test_an_older_machine_that_can_read_the_metadata_now_does(landed: Path) -> None:
    """As with a folder in an object store, which is listed only now and then."""
    sensor, worker = machine(landed / "sensor", 60, MASKED), machine(landed / "worker", 900, OLD)
    stale, work = document(worker), decided(sensor)
    machine(landed / "worker", 60, MASKED)
    used, marked = agreed(worker, stale, work, LOG)
    assert used.specs[0].mask == {"email": "hash"}
    assert marked == work


def test_a_worker_with_newer_metadata_uses_its_rows_and_records_them(landed: Path) -> None:
    """What is remembered names the row that was used: the next sensor finds nothing to do."""
    sensor, worker = machine(landed / "sensor", 900, OLD, OTHER), machine(landed / "worker", 60, MASKED)
    used, work = agreed(worker, document(worker), decided(sensor), LOG)
    assert used.specs[0].mask == {"email": "hash"}
    assert work.initial == decided(worker).initial
    assert sorted(work.initial) == ["shop.a"]
