"""Documents beside a ledger that are damaged: the error names the file, not the job's spec."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.ledger.cut_changes import cut_before
from spark_jobs.ledger.erasures import ErasureRegister
from spark_jobs.verification import WINDOW_DIFFERENCES, read_differences


def erasure(storage: Storage, root: str) -> object:
    return ErasureRegister(storage, root, TableSpec(table="s.a", keys=("id",))).read("0f")


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"[]", b"{}x"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("cut.json", cut_before),
        ("source-looks.json", read_differences),
        ("window-looks.json", partial(read_differences, name=WINDOW_DIFFERENCES)),
        ("0f.json", erasure),
    ],
)
def test_damage_names_the_file(
    tmp_path: Path, name: str, read: Callable[[Storage, str], object], damage: bytes
) -> None:
    assert not read(Storage(), str(tmp_path))
    (tmp_path / name).write_bytes(damage)
    with pytest.raises(FatalError, match=rf"LEDGER_DAMAGED.*{name}.*Remedy"):
        read(Storage(), str(tmp_path))
    (tmp_path / name).write_bytes(b'{"other": 1}')
    with pytest.raises(FatalError, match=rf"LEDGER_NEWER.*'other'.*{name}.*Remedy: install that version"):
        read(Storage(), str(tmp_path))
