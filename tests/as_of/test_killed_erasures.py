"""An erasure that dies at any of its writes, and is repeated: every table and document as of one that did not die."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.layout import STATE
from airflow_gddl.contract.spec import JobOptions
from tests.adopt.dying import died
from tests.as_of.test_by_time import ACCOUNTS, ORDERS, at, cuts_of, filled
from tests.harness.lake import Lake, read

ERASE = JobOptions(action=Erase(key={"id": "1"}, asked_by="x"))
TABLES = ("replica", "changes", "history", "errors", "tombstones")
_OF_A_RUN = ("asked_at", "until", "done_at", "stored_until", "run_id")


def _state(lake: Lake) -> Mapping[str, Any]:
    """Rows of the tables and of the cut's, and what documents say of them."""
    layout = lake.layout(ACCOUNTS)
    (cut,) = cuts_of(lake, ACCOUNTS).stored("first").tables[:1]
    state = {name: sorted(map(str, read(getattr(layout, name)))) for name in TABLES}
    state["cut"] = sorted(map(str, read(str(lake.root / "lake" / cut.folder))))
    (record,) = (Path(lake.roots.lake) / STATE / "erased" / "s" / "accounts").glob("*.json")
    erased = json.loads(record.read_text(encoding="utf-8"))
    return state | {
        "record": {name: value for name, value in erased.items() if name not in _OF_A_RUN},
        "rows": lake.ledger(ACCOUNTS).state.rows,
    }


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_erasure_is_repeated(after: bool, tmp_path: Path) -> None:
    at_first, kept = tmp_path / "lake", tmp_path / "kept"
    lake = Lake(at_first)
    filled(lake)
    cuts_of(lake, ACCOUNTS, ORDERS).make("first", at(5).isoformat())
    shutil.copytree(at_first, kept)
    lake.done(ACCOUNTS, ERASE)
    salt = Path(lake.roots.lake) / STATE / "erased" / "salt.json"
    secret, whole, number, wrong = salt.read_bytes(), _state(lake), 0, list[str]()
    while True:
        shutil.rmtree(at_first)
        shutil.copytree(kept, at_first)
        salt.parent.mkdir(parents=True, exist_ok=True)
        salt.write_bytes(secret)
        path = died(lake.job([ACCOUNTS], ERASE), number, after=after)
        if path is None:
            break
        lake.done(ACCOUNTS, ERASE)
        found = _state(lake)
        wrong += [
            f"{number} {path}: {name} {found[name]}, not {whole[name]}" for name in whole if found[name] != whole[name]
        ]
        number += 1
    assert number > 10
    assert wrong == []
