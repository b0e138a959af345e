"""docs/extending.md's claim: a module and an entry point make a command of `gddl`."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from tests.harness.third_package import installed


@pytest.fixture
def metadata(tmp_path: Path) -> str:
    folder = tmp_path / "metadata"
    (folder / "tables").mkdir(parents=True)
    (folder / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    (folder / "tables/t.yaml").write_text("source: shop\ntables:\n  - {table: s.t, keys: [id], owner: ann}\n")
    return str(folder)


def test_a_command_of_another_package_is_found_by_its_name(
    metadata: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["owners", "--metadata", metadata], context.real()) == 2
    with installed(tmp_path / "site", "A command", monkeypatch):
        assert invoke(["owners", "--metadata", metadata], context.real()) == 0
        assert "s.t: ann" in capsys.readouterr().out
        assert invoke(["--help"], context.real()) == 0
        assert "Show who owns each table." in capsys.readouterr().out


def test_a_command_that_cannot_be_loaded_is_named_when_it_is_called(
    metadata: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with installed(tmp_path / "site", "A command", monkeypatch) as points:
        points.write_text("[airflow_gddl.commands]\nowners = our_tool.gone:DESCRIPTOR\n")
        assert invoke(["owners", "--metadata", metadata], context.real()) == 2
        assert "[COMMAND_BROKEN]" in capsys.readouterr().err
        assert invoke(["--help"], context.real()) == 0
        assert invoke(["validate", "--metadata", metadata], context.real()) == 0


@pytest.mark.parametrize(
    ("words", "near"), [(["runn"], "run"), (["valdate"], "validate"), (["errors", "lst"], "list"), (["xyzzy"], "")]
)
def test_a_misspelt_command_gets_a_suggestion(words: list[str], near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(words, context.real()) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert (f"Did you mean '{near}'?" in shown) == bool(near)
    assert f"No such command '{words[-1]}'" in shown
