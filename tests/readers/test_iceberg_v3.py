"""What docs/iceberg.md says of readers of v3: which of them read tables whose files and vectors both formats name.

Readers that another environment has are asked by `python -m tests.readers.iceberg_v3`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.conftest import LocalPort
from tests.readers import iceberg_v3
from tests.readers.iceberg_v3 import MERGED, VECTORS, VERSIONS, answer, ask, by_spark, spark_delta

pytest.importorskip("pyiceberg")
pytest.importorskip("pyroaring")

READ, VERSION_BYTE, MAGIC = "reads", "Invalid version 80", "Incorrect magic bytes"
SEVERAL = "multiple deletion vectors associated with one data file"
EXPECTED = {
    "deltalake": {"bin": READ, "both": READ, "puffin": VERSION_BYTE, "inline": READ, "copied": READ},
    "Polars, Delta": {"bin": READ, "both": READ, "puffin": VERSION_BYTE, "inline": READ, "copied": READ},
    "Polars, Iceberg": {
        "bin": "unsupported Puffin footer", "both": MAGIC, "puffin": SEVERAL, "inline": SEVERAL, "copied": READ
    },
    "pyiceberg": {"bin": MAGIC, "both": MAGIC, "puffin": READ, "inline": READ, "copied": READ},
}  # fmt: skip
"""The answer, or a part of the error."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    iceberg_v3.make(folder)
    return folder


@pytest.mark.parametrize("package", ["deltalake", "polars", "pyiceberg"])
def test_readers_of_bitmaps(tables: Path, package: str) -> None:
    """Where one of these fails, a reader has changed: see `Wrong if` of the decision, and docs/iceberg.md."""
    for reader, answers in ask(package, tables).items():
        assert answers.keys() == VECTORS.keys()
        for kind, said in answers.items():
            expected = EXPECTED[reader][kind]
            assert said == READ if expected == READ else said.startswith("refuses") and expected in said, (kind, said)


def test_wrong_rows_are_told(tables: Path, tmp_path: Path) -> None:
    """The experiment compares rows: an expected row that no version has makes the answer `WRONG`."""
    read = iceberg_v3.pyiceberg_iceberg()
    iceberg_v3.make(tmp_path)
    changed = tmp_path / "copied/expected-2.json"
    changed.write_text(json.dumps([*json.loads(changed.read_text()), [9999, "9999 of 2", 1, 1]]))
    assert answer(read, tmp_path, "copied").startswith("WRONG: version 2 has ")
    assert answer(read, tables, "copied") == READ


def test_the_page_says_what_readers_read() -> None:
    """Readers here read what version 3 writes, as the page says; and no other file of bitmaps suits all."""
    page = Path(__file__).parents[2] / "docs/iceberg.md"
    lines = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    for reader, begin in {"pyiceberg": "PyIceberg ", "Polars, Iceberg": "Polars "}.items():
        (row,) = [cells for cells in lines if cells[0].startswith(begin)]
        assert (row[1], EXPECTED[reader]["copied"]) == ("yes", READ), reader
    suits_all = [kind for kind in EXPECTED["deltalake"] if all(said[kind] == READ for said in EXPECTED.values())]
    assert suits_all == ["copied"]


@pytest.mark.deep
def test_spark_reads_rows_and_row_ids_as_delta(tables: Path) -> None:
    read = spark_delta(LocalPort("many").spark.for_table())
    said = {kind: answer(read, tables, kind, (2, 5, VERSIONS)) for kind in VECTORS}
    assert said == dict.fromkeys(VECTORS, "reads, with row ids")


@pytest.mark.deep
def test_a_table_that_spark_writes(tmp_path: Path) -> None:
    """Row ids outlive `MERGE` and `OPTIMIZE`; each version's files and a copy of its bitmaps are an Iceberg table."""
    root = by_spark(LocalPort("many").spark.for_table(), tmp_path)
    ids: dict[int, set[int]] = defaultdict(set)
    for version in range(1, VERSIONS + 1):
        for key, _, row_id, _ in json.loads((root / f"expected-{version}.json").read_text()):
            ids[key].add(row_id)
    assert len(ids) > 40
    assert {len(of_key) for of_key in ids.values()} == {1}
    assert list(root.glob("iceberg-*/metadata/*.puffin"))
    for package in ("deltalake", "polars", "pyiceberg"):
        assert {said for by_kind in ask(package, tmp_path).values() for said in by_kind.values()} == {READ}
    assert (root.name, len(list(root.glob("iceberg-*")))) == (MERGED, VERSIONS)
