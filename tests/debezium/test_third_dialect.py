"""docs/extending.md's claim: a class and an entry point make a dialect, for metadata and for both engines."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DIALECTS, forget_entry_points
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import InitialLoad, JobSpec, Roots, TableSpec
from airflow_gddl.metadata import validation
from airflow_gddl.metadata.validation import check_spec
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.rooms.dialects.protocol import dialect_of
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.lake import Lake
from tests.unit.pages import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
PART = PAGE.partition("## A dialect\n")[2].partition("\n## ")[0]
(MODULE,) = re.findall(r"```python\n(.*?)```", PART, re.DOTALL)
ENTRY_POINTS = """[airflow_gddl.dialects]
pipes = our_pipes.dialect:DESCRIPTOR
"""
PIPES = TableSpec(table="shop.t", keys=("id",), dialect="pipes", options={"separator": ";"})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's package on the path, as pip would install it."""
    package = tmp_path / "site" / "pipes-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: pipes\nVersion: 1\n")
    (package / "entry_points.txt").write_text(ENTRY_POINTS)
    (package.parent / "our_pipes").mkdir()
    (package.parent / "our_pipes" / "__init__.py").touch()
    (package.parent / "our_pipes" / "dialect.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(package.parent))
    forget()
    yield
    forget()


def forget() -> None:
    forget_entry_points()
    validation.options_of.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "our_pipes"]:
        del sys.modules[name]


def test_docs_show_the_registration() -> None:
    (registered,) = re.findall(r"```toml\n(.*?)```", PART, re.DOTALL)
    assert registered == '[project.entry-points."airflow_gddl.dialects"]\npipes = "our_pipes.dialect:DESCRIPTOR"\n'
    assert "our_pipes" not in sys.stdlib_module_names


@pytest.mark.usefixtures("installed")
def test_metadata_validates_dialect_options() -> None:
    assert DIALECTS.names() == ("dms", "debezium", "pipes")
    assert check_spec(PIPES, {"small"}) == ()
    wrong = TableSpec(table="shop.t", keys=("id",), dialect="pipes", options={"seperator": ";"})
    (problem,) = check_spec(wrong, {"small"})
    assert (problem.code, problem.field) == ("FIELD_UNKNOWN", "options.seperator")
    assert "separator" in problem.remedy


@pytest.mark.parametrize(("action", "code"), [("initial_load", "INITIAL_LOAD"), ("resync_rows", "RESYNC_ROWS")])
@pytest.mark.usefixtures("installed")
def test_rows_of_the_source_are_for_dialects_that_take_them(action: str, code: str, tmp_path: Path) -> None:
    (problem,) = check_spec(replace(PIPES, initial_load=InitialLoad()), {"small"})
    assert (problem.code, problem.field) == ("FIELD_VALUE", "initial_load")
    found = Lake(tmp_path).run(PIPES, options_of(action))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == f"{code}_REFUSED"
    assert "its dialect pipes takes no" in found.result.error.message


@pytest.mark.parametrize("broken", ["our_pipes.gone:DESCRIPTOR", "our_pipes.dialect:GONE"])
@pytest.mark.usefixtures("installed")
def test_unloadable_package_is_a_problem_of_its_rows(broken: str, tmp_path: Path) -> None:
    (entry_points,) = tmp_path.rglob("entry_points.txt")
    entry_points.write_text(ENTRY_POINTS.replace("our_pipes.dialect:DESCRIPTOR", broken))
    forget()
    for spec in (PIPES, replace(PIPES, options={})):
        (problem,) = check_spec(spec, {"small"})
        assert (problem.code, problem.path) == ("DIALECT_BROKEN", ("dialect",))
        assert broken in problem.message
    with pytest.raises(FatalError) as caught:
        dialect_of(PIPES)
    assert caught.value.code == "DIALECT_BROKEN"


@pytest.mark.usefixtures("installed")
def test_undeclared_technical_columns_are_refused(tmp_path: Path) -> None:
    (module,) = (tmp_path / "site" / "our_pipes").glob("dialect.py")
    module.write_text(MODULE.replace('technical=("pipe_number",)', "technical=()"))
    with pytest.raises(FatalError, match="adds pipe_number, which `technical`") as caught:
        dialect_of(PIPES)
    assert caught.value.code == "DIALECT_BROKEN"


@pytest.mark.usefixtures("installed")
def test_another_object_than_a_descriptor_is_refused(tmp_path: Path) -> None:
    (entry_points,) = tmp_path.rglob("entry_points.txt")
    entry_points.write_text(ENTRY_POINTS.replace(":DESCRIPTOR", ":PipeOptions"))
    forget()
    (problem,) = check_spec(PIPES, {"small"})
    assert (problem.code, problem.path) == ("DIALECT_BROKEN", ("dialect",))
    assert "not a DialectDescriptor" in problem.message


@pytest.mark.usefixtures("installed")
def test_files_of_the_dialect_are_loaded(engine: LocalPort, tmp_path: Path) -> None:
    if engine.name == "many":  # whose workers run already: elsewhere the package is installed for them
        package = shutil.make_archive(str(tmp_path / "our_pipes"), "zip", tmp_path / "site", "our_pipes")
        engine.spark.for_table().sparkContext.addPyFile(package)
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    layout = Layout.of(roots, PIPES)
    folder = Path(layout.landing)
    folder.mkdir(parents=True)
    (folder / "b.pipe").write_text("-;3;1;\n+;4;3;c\n?;5;4;d\n")
    (folder / "a.pipe").write_text("+;1;1;a\n+;2;2;b\n")
    (folder / "notes.txt").write_text("no data")
    (result,) = engine.run(JobSpec(run_id="r", roots=roots, tables=(PIPES,)))
    assert result.status == "succeeded", result.error
    assert sorted((row["id"], row["value"]) for row in engine.read(layout.replica)) == [(2, "b"), (3, "c")]
    (error,) = engine.read(layout.errors)
    assert (error["code"], error["column"]) == ("OP_UNKNOWN", "pipe_op")
    assert error["reason"].endswith("one of +, -")
    (warning,) = [w for w in result.warnings if w.code == "FILES_IGNORED"]
    assert "our pipes" in warning.message


def test_dialect_is_unknown_without_its_package() -> None:
    with pytest.raises(FatalError) as caught:
        dialect_of(PIPES)
    assert caught.value.code == "DIALECT_UNKNOWN"
    assert [problem.code for problem in check_spec(PIPES, {"small"})] == ["FIELD_VALUE"]
