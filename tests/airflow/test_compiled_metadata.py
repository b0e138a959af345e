"""The compiled metadata: fresh when it can be, the last good copy when not, whole at any time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.runtime.compiled.cache import CompiledSettings, file_of
from airflow_gddl.runtime.compiled.keeper import bounded
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from tests.harness.s3_server import Bucket

LATER = 1000.0


@dataclass
class Place:
    """A metadata folder whose files are old enough, and its cache."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    now: float = field(default_factory=lambda: time.time() + LATER)

    def __post_init__(self) -> None:
        (self.metadata / "tables").mkdir(parents=True)
        self.write("gddl.yaml", "landing: landing\nlake: lake\n")

    @property
    def metadata(self) -> Path:
        return self.root / "metadata"

    def write(self, name: str, text: str) -> None:
        (self.metadata / name).write_text(text)

    def tables(self, *names: str, file: str = "tables/shop.yaml", extra: str = "") -> None:
        rows = "".join(f"  - {{table: {name}, keys: [id]{extra}}}\n" for name in names)
        self.write(file, f"tables:\n{rows}")

    @property
    def settings(self) -> CompiledSettings:
        return CompiledSettings(
            metadata=str(self.metadata), cache=self.root / "cache", environ=self.environ, clock=lambda: self.now
        )

    def current(self) -> CompiledMetadata:
        return CompiledMetadata.current(self.settings)

    def names(self) -> list[str]:
        """Every table that serves."""
        compiled = self.current()
        documents = (compiled.pipeline(pipeline.dag_id) for pipeline in compiled.pipelines())
        return sorted(spec.table for document in documents if document for spec in document.specs)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.tables("shop.a", "shop.b")
    return made


def test_a_change_is_found_at_the_next_check_and_unchanged_metadata_is_not_rewritten(place: Place) -> None:
    assert place.names() == ["shop.a", "shop.b"]
    first = place.current().generation
    stamps = {path: path.stat().st_mtime_ns for path in (place.root / "cache").rglob("*")}
    assert place.current().generation == first
    assert stamps == {path: path.stat().st_mtime_ns for path in (place.root / "cache").rglob("*")}
    place.tables("shop.a", "shop.c")
    assert place.names() == ["shop.a", "shop.c"]


def test_disabled_rows_are_left_out(place: Place) -> None:
    place.tables("shop.c", file="tables/more.yaml", extra=", enabled: false")
    assert place.names() == ["shop.a", "shop.b"]


def test_an_environment_variable_changes_the_snapshot(place: Place) -> None:
    before = place.current().pipeline("gddl_pack.shop.small.1")
    place.environ["GDDL_LAKE"] = "/elsewhere"
    after = place.current().pipeline("gddl_pack.shop.small.1")
    assert before is not None
    assert after is not None
    assert (before.roots.lake != "/elsewhere", after.roots.lake) == (True, "/elsewhere")


def test_reading_needs_no_pydantic_and_no_yaml(place: Place) -> None:
    place.current()
    code = (
        "import sys, pathlib; from airflow_gddl.runtime.compiled.cache import CompiledSettings as S\n"
        "from airflow_gddl.runtime.compiled.metadata import CompiledMetadata\n"
        f"cache = pathlib.Path({str(place.root / 'cache')!r})\n"
        f"s = CompiledMetadata.current(S(metadata={str(place.metadata)!r}, cache=cache,"
        f" environ={{}}, clock=lambda: {place.now}))\n"
        "print(len(s.pipelines()), s.entry('gddl_pack.shop.small.1') is not None,"
        " sorted({'pydantic', 'yaml', 'obstore', 'airflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1 True []"


@pytest.mark.parametrize("damage", ["settings", "gone", "environment"])
def test_the_last_good_copy_is_used_with_time_and_reason(place: Place, damage: str) -> None:
    assert place.names() == ["shop.a", "shop.b"]
    if damage == "settings":
        place.write("gddl.yaml", "landing: landing\nlake: [\n")
    elif damage == "gone":
        place.metadata.rename(place.root / "moved")
    else:
        place.environ["GDDL_NONSENSE__X"] = "1"
    assert place.names() == ["shop.a", "shop.b"]
    since = place.current().state.stale_since
    place.now += 60
    state = place.current().state
    assert state.stale_since == since is not None
    assert {"settings": "SETTINGS_INVALID", "gone": "METADATA_UNREACHABLE", "environment": "GDDL_NONSENSE__X"}[
        damage
    ] in state.why


def test_it_is_fresh_again_once_it_can_be_read(place: Place) -> None:
    place.current()
    place.metadata.rename(place.root / "moved")
    assert place.current().state.stale_since is not None
    (place.root / "moved").rename(place.metadata)
    assert (place.current().state.stale_since, place.current().state.why) == (None, "")
    place.write("gddl.yaml", "lake: [\n")
    assert place.current().state.stale_since is not None
    place.write("gddl.yaml", "landing: landing\nlake: other\n")
    assert (place.current().state.stale_since, place.current().state.why) == (None, "")


def test_without_a_good_copy_there_is_no_snapshot_but_a_reason(place: Place) -> None:
    place.write("gddl.yaml", "landing: landing\n")
    compiled = place.current()
    assert (compiled.pipelines(), compiled.generation) == ((), None)
    assert "lake" in compiled.state.why
    place.write("gddl.yaml", "landing: landing\nlake: lake\n")
    assert place.names() == ["shop.a", "shop.b"]


def test_tables_of_an_unreadable_file_are_kept(place: Place) -> None:
    place.tables("erp.x", file="tables/erp.yaml")
    assert place.names() == ["erp.x", "shop.a", "shop.b"]
    place.write("tables/shop.yaml", "tables:\n  - {table: shop.a, keys: [id\n")  # as if its writer were not done
    place.tables("erp.x", "erp.y", file="tables/erp.yaml")
    assert place.names() == ["erp.x", "erp.y", "shop.a", "shop.b"]
    compiled = place.current()
    assert compiled.state.carried == ("shop.a", "shop.b")
    assert any("tables/shop.yaml" in problem and "DOCUMENT_INVALID" in problem for problem in compiled.problems())
    place.tables("shop.a")
    assert place.names() == ["erp.x", "erp.y", "shop.a"]


def test_a_bad_row_is_left_out_and_named(place: Place) -> None:
    place.tables("shop.a", "shop.b", "shop.c.d")
    assert place.names() == ["shop.a", "shop.b"]
    problem = place.current().problems()
    assert len(problem) == 1
    assert re.search(r"tables/shop\.yaml:4: \[FIELD_VALUE\].*'shop\.c\.d'.*Remedy: ", problem[0])


def test_a_file_that_was_written_just_now_waits(place: Place) -> None:
    place.current()
    place.tables("shop.z")
    place.now = (place.metadata / "tables/shop.yaml").stat().st_mtime + 0.2
    assert place.names() == ["shop.a", "shop.b"]
    place.now += 5
    assert place.names() == ["shop.z"]


@pytest.mark.parametrize("victim", ["state.json", "index.json", "problems.json", "pipelines"])
@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', None])
def test_a_damaged_cache_is_rebuilt(place: Place, victim: str, content: str | None) -> None:
    place.current()
    for path in list((place.root / "cache").rglob("*.json")):
        if victim in str(path):
            path.unlink() if content is None else path.write_text(content)
    assert place.names() == ["shop.a", "shop.b"]
    assert place.current().problems() == ()


def test_a_reader_keeps_its_generation_while_others_are_made(place: Place) -> None:
    reader = place.current()
    place.tables("shop.c")
    place.current()
    assert [pipeline.dag_id for pipeline in reader.pipelines()] == ["gddl_pack.shop.small.1"]
    document = reader.pipeline("gddl_pack.shop.small.1")
    assert document is not None
    assert [spec.table for spec in document.specs] == ["shop.a", "shop.b"]
    for n in range(10):
        place.tables(f"shop.t{n}")
        place.current()
    assert len(list((place.root / "cache").glob("*/gen-*"))) <= 4


def test_concurrent_builders_produce_complete_snapshots(place: Place) -> None:
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(place.names())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["shop.a", "shop.b"]] * 8


def test_a_worker_s_entry_costs_the_same_among_many_tables(place: Place) -> None:
    place.tables(*(f"shop.t{n}" for n in range(2000)), extra=", size: large")
    compiled = place.current()
    generation = compiled.generation
    assert generation is not None
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    opened.clear()
    assert compiled.entry("gddl.shop.t7") is not None
    assert [path for path in opened if str(generation) in path] == [str(file_of(generation, "gddl.shop.t7"))]
    assert len(json.loads(Path(file_of(generation, "gddl.shop.t7")).read_bytes())) < 2000 / 16
    assert compiled.entry("gddl.shop.nothing") is None
    assert compiled.entry("../../state") is None


def test_the_index_is_read_in_ten_microseconds_a_row(place: Place) -> None:
    rows = "".join(f"s{n % 7}.t{n},id,{'medium' if n % 10 == 0 else 'small'}\n" for n in range(10_000))
    place.write("tables/many.csv", "table,keys,size\n" + rows)
    place.current()

    def once() -> float:
        start = time.process_time()
        assert len(place.current().pipelines()) > 1000
        return time.process_time() - start

    assert min(once() for _ in range(5)) < 10e-6 * 10_000


def test_an_unusable_cache_is_reported(place: Place) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (place.root / "cache").mkdir(mode=0o500)
    with pytest.raises(FatalError, match="CACHE_UNUSABLE"):
        place.current()


def test_dependencies_on_other_pipelines_are_described(place: Place) -> None:
    place.write(
        "tables/shop.yaml",
        "tables:\n"
        "  - {table: shop.a, keys: [id], depends_on: [shop.big, shop.off, shop.bad, shop.b]}\n"
        "  - {table: shop.b, keys: [id]}\n"
        "  - {table: shop.big, keys: [id], size: large}\n"
        "  - {table: shop.off, keys: [id], enabled: false}\n"
        "  - {table: shop.bad, keys: [id], nonsense: 1}\n",
    )
    document = place.current().pipeline("gddl_pack.shop.small.1")
    assert document is not None
    assert [(other.spec.table, other.dag_id) for other in document.dependencies] == [("shop.big", "gddl.shop.big")]
    assert document.unmet == ("shop.bad", "shop.off")


def test_pipelines_of_heartbeats_are_described(place: Place) -> None:
    """Alerts of a load read their state, too."""
    place.write(
        "tables/shop.yaml",
        "defaults: {heartbeat: shop.beat}\n"
        "tables: [{table: shop.a, keys: [id]}, {table: shop.beat, keys: [id], size: large}]\n",
    )
    found = {name: place.current().pipeline(name) for name in ("gddl_pack.shop.small.1", "gddl.shop.beat")}
    assert {name: document and document.heartbeats for name, document in found.items()} == {
        "gddl_pack.shop.small.1": ("gddl.shop.beat",), "gddl.shop.beat": (),
    }  # fmt: skip


def test_rows_are_read_as_they_were_compiled(place: Place) -> None:
    place.write("tables/shop.yaml", "tables: [{table: shop.a, keys: [id]}, {table: shop.b, keys: [id], nonsense: 1}]\n")
    directory = place.current().directory()
    assert directory is not None
    assert [bool(row.problems) for row in directory.rows] == [False, True]
    assert len(set(directory.rows)) == 2, "without lists, as `table_rows` makes them"


def test_a_call_that_hangs_is_given_up() -> None:
    with pytest.raises(Exception, match=r"METADATA_UNREACHABLE.*no answer within 0\.1 s"):
        bounded(threading.Event().wait, 0.1, "there", {})
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0, 5, "here", {})
    assert bounded(lambda: json.loads("[1]"), 5, "here", {}) == [1]


def test_metadata_in_a_bucket_is_listed_once_an_interval_and_outlives_the_bucket(place: Place, bucket: Bucket) -> None:
    for path in place.metadata.rglob("*.yaml"):
        bucket.objects[f"meta/{path.relative_to(place.metadata).as_posix()}"] = path.read_bytes()
    settings = replace(
        place.settings, metadata="s3://bucket/meta", environ={**os.environ, "GDDL_LANDING": "/l", "GDDL_LAKE": "/k"}
    )

    def rows() -> int:
        return len(CompiledMetadata.current(settings).pipelines())

    assert rows() == 1, CompiledMetadata.current(settings).state
    asked = len(bucket.requests)
    place.now += 5
    assert rows() == 1
    assert len(bucket.requests) == asked
    bucket.objects["meta/tables/erp.yaml"] = b"tables:\n  - {table: erp.x, keys: [id]}\n"
    place.now += 60
    assert rows() == 2
    bucket.fail = 403
    place.now += 60
    assert rows() == 2
    assert CompiledMetadata.current(settings).state.stale_since is not None
