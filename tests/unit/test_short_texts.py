"""Wherever an error is shown in short, its remedy is whole: in a terminal, on the page, in an alert."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.status import line_of, show
from airflow_gddl.contract.errors import FatalError, brief
from airflow_gddl.contract.result import JobResult, error_info
from airflow_gddl.runtime.state.alerts import AlertLimits, alerts
from airflow_gddl.runtime.state.lake_state import LakeState, table_statuses
from airflow_gddl.runtime.state.table_runs import TableRecord
from tests.unit.pages import SOURCES, trees
from tests.unit.test_docs import CODE, documented_codes
from tests.unit.test_table_status import ROW

TABLE = "a_schema_with_a_long_name.a_table_with_a_long_name"
LISTING = "\n".join(f"  column_{number} decimal(38,10)" for number in range(300))
PATHS = ", ".join(f"s3://bucket/landing/{TABLE.replace('.', '/')}/LOAD{number:08d}.parquet" for number in range(5))


def remedies() -> Iterator[tuple[str, str]]:
    """Each code with the remedies that its raise sites write, with a name in each gap; else what the page says."""
    found = {site for tree in trees(SOURCES) for site in _written(tree)}
    yield from sorted(found)
    codes = {code for code, _ in found}
    yield from ((code, do) for code, kind, _, do in documented_codes() if code not in codes and "fatal" in kind)


def _written(tree: ast.Module) -> Iterator[tuple[str, str]]:
    calls = [(node, node.args[0]) for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    for call, code in calls:
        if isinstance(code, ast.Constant) and isinstance(code.value, str) and CODE.fullmatch(code.value):
            texts = (_text(word.value) for word in call.keywords if word.arg == "remedy")
            yield from ((code.value, text) for text in texts if text)


def _text(node: ast.expr) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value if isinstance(part, ast.Constant) else TABLE for part in parts]
    known = isinstance(node, ast.JoinedStr | ast.Constant)
    return "".join(text for text in texts if isinstance(text, str)) if known else ""


SITES = list(remedies())


def test_there_are_remedies_of_most_codes() -> None:
    assert len({code for code, _ in SITES}) > 140


@pytest.mark.parametrize(("code", "remedy"), SITES)
def test_remedy_is_whole_wherever_it_is_shown(
    code: str, remedy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = error_info(FatalError(code, f"a difference\n{LISTING}", where=PATHS, remedy=remedy))
    failed = JobResult(table=TABLE, status="failed", error=error, started_at="2024-01-01T00:00:00+00:00")
    record = TableRecord().after(failed, 0.0)
    row = replace(ROW, table=TABLE, freshness=None)
    (found,) = table_statuses([row], LakeState(records={TABLE: record}, read=1.0), 0.0)
    whole = words(remedy)
    assert whole in words(record.error or ""), "the page's box"
    (alert,) = alerts([found], {}, AlertLimits(quarantine_rate=1.0, failed_runs=1))
    assert whole in words(alert.line), "an alert"
    assert alert.line.endswith(f"▸ gddl {alert.line.rpartition('▸ gddl ')[2]}"), "its command"
    assert len(alert.line) < 1024, "services cut longer ones"
    monkeypatch.setenv("COLUMNS", "80")
    show(Screen(), [found], 0.0, ("failed",))
    shown = capsys.readouterr().out
    assert whole in words(shown), "a terminal of 80 columns"
    assert "a difference" in words(shown)
    assert line_of(found, 0.0)["error"]


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_short_text_keeps_what_happened_and_what_to_do() -> None:
    text = str(FatalError("A_CODE", f"v: table int, file text\n{LISTING}", where=PATHS, remedy="do this"))
    short = brief(text, 120)
    assert short.startswith("[A_CODE] v: table int, file text")
    assert short.endswith(" … Remedy: do this")
    assert len(short) <= 120
    assert brief("x" * 50, 20) == "x" * 18 + " …"
    assert brief(text, len(text)) == text
