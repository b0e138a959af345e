"""A metadata folder with hostile files: each is named, none is waited for, none is believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata import files
from airflow_gddl.metadata.loading import load
from airflow_gddl.runtime.compiled.keeper import sign
from tests.unit.metadata_folder import only_problem, row_file, write

GOOD = "{table: s.t, keys: [id]}"


@pytest.mark.parametrize("name", ["tables/a.yaml", "keys/a.yaml", "tables/a.csv"])
def test_a_fifo_does_not_block(name: str, tmp_path: Path) -> None:
    write(tmp_path, {"tables/z.yaml": row_file(GOOD), "keys/z.yaml": ""})
    os.mkfifo(tmp_path / name)
    catalog = load(tmp_path, {})
    problem = only_problem(catalog)
    assert (problem.code, problem.file, len(catalog.tables)) == ("FILE_UNREADABLE", name, 1)
    assert "not a regular file" in problem.message


def test_settings_in_a_fifo_do_not_block(tmp_path: Path) -> None:
    write(tmp_path, {"tables/z.yaml": row_file(GOOD)})
    (tmp_path / "gddl.yaml").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "gddl.yaml")
    with pytest.raises(MetadataError, match="not a regular file"):
        load(tmp_path, {})


def test_links_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    """A row could show, in the message of its problem, a line of any file that Airflow can read."""
    folder = tmp_path / "metadata"
    folder.mkdir()
    write(folder, {"tables/z.yaml": row_file(GOOD), "..data/b.yaml": row_file("{table: s.linked, keys: [id]}")})
    (tmp_path / "secret.yaml").write_text("password: hunter2\n")
    (folder / "tables/a.yaml").symlink_to(tmp_path / "secret.yaml")
    (folder / "tables/b.yaml").symlink_to(folder / "..data" / "b.yaml")
    link = tmp_path / "link"
    link.symlink_to(folder)
    for place in (folder, link):
        catalog = load(place, {})
        problem = only_problem(catalog)
        assert (problem.code, problem.file) == ("FILE_UNREADABLE", "tables/a.yaml")
        assert "a link that leaves the metadata folder" in problem.message
        assert "hunter2" not in str(problem)
        assert [spec.table for spec in catalog.tables] == ["s.linked", "s.t"]


def test_a_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"tables/z.yaml": row_file(GOOD)})
    (tmp_path / "tables" / os.fsdecode(b"\xff.yaml")).write_text(row_file("{table: s.bad, keys: [id]}"))
    catalog = load(tmp_path, {})
    problem = only_problem(catalog)
    assert (problem.code, problem.file, len(catalog.tables)) == ("FILE_UNREADABLE", "tables/\\xff.yaml", 1)
    assert sign(str(tmp_path), {}).text


def test_each_duplicate_name_is_refused() -> None:
    value = files.read_json("{" + ", ".join(f'"n{i}": 1, "n{i}": 2' for i in range(40_000)) + ', "once": 3}')
    assert value.pop("once") == 3
    assert len(value) == 40_000
    assert {refused.code for refused in value.values()} == {"DOCUMENT_INVALID"}
