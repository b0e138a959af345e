"""Files that can start a new table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_jobs.rooms.dialects.protocol import Probed, begin_a_table
from tests.harness.landed import planned_file

PLAIN = Probed(file=planned_file("LOAD00000001.parquet"), columns=(("id", "int"),))


@pytest.mark.parametrize(("files", "begin"), [
    ([{}], True), ([], False), ([{"only_truncates": True}], False), ([{"only_truncates": True}, {}], True),
])  # fmt: skip
def test_one_file_with_rows_starts_a_table(files: list[dict[str, Any]], begin: bool) -> None:
    assert begin_a_table([_file(**given) for given in files]) is begin


def _file(**given: Any) -> Probed:
    return replace(PLAIN, **given)
