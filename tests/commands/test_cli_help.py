"""Help of every command, its example, the page it names, and completion of table names."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from airflow_gddl.cli import context
from airflow_gddl.cli.commands import COMMANDS, app
from airflow_gddl.cli.main import invoke
from tests.unit.pages import DOCS, anchors, commands

ROOT = typer.main.get_command(app)


def paths(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*path, name)
        if hasattr(command, "list_commands"):
            yield from paths(command, (*path, name))


@pytest.mark.parametrize("path", list(paths(ROOT)), ids=" ".join)
def test_help_shows_no_type_of_python(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert invoke([*path, "-h"], context.real()) == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    types = ("<bool>", "<str>", "<int", "<float", "<path>", "<list", "INTEGER", "FLOAT")
    assert [word for word in types if word in shown] == [], shown
    assert "completion" not in shown, "of the program alone"


@pytest.mark.parametrize("name", COMMANDS)
def test_example_is_a_command_with_its_options(name: str) -> None:
    known = dict(commands(ROOT))
    words = shlex.split(COMMANDS[name].example.partition(" > ")[0])
    assert words[:2] == ["gddl", name]
    path = " ".join(words[:3]) if " ".join(words[:3]) in known else " ".join(words[:2])
    assert {word for word in words if word.startswith("--")} <= known[path]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_a_section_that_exists(name: str) -> None:
    file, _, anchor = COMMANDS[name].page.partition("#")
    assert (DOCS / file).is_file()
    assert not anchor or anchor in anchors(DOCS / file)


def options(*, multiple: bool) -> list[Any]:
    """Every option with a value, with its command: those that may be given several times, or the others."""
    found = []
    for path in paths(ROOT):
        command: Any = ROOT
        for name in path:
            command = command.get_command(None, name)
        valued = (one for one in command.params if one.param_type_name == "option" and not one.is_flag)
        found += [
            pytest.param([*path], one.opts, id=" ".join([*path, one.opts[0]]))
            for one in valued
            if one.multiple == multiple
        ]
    return found


@pytest.mark.parametrize(("path", "names"), options(multiple=False))
def test_an_option_that_takes_one_value_is_refused_when_it_is_given_twice(
    path: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for second in ([names[-1], "b c"], [f"{names[-1]}=b c"]) if names[-1].startswith("--") else ([names[-1], "b c"],):
        assert invoke([*path, names[0], "a", *second], context.real()) == 2
        shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
        assert f"{'/'.join(names)} takes one value, and is given 2: 'a' and 'b c'" in shown, shown


@pytest.mark.parametrize(("path", "names"), options(multiple=True))
def test_an_option_that_takes_a_list_may_be_given_twice(
    path: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke([*path, names[0], "a", names[0], "b", "--not-an-option"], context.real()) == 2
    shown = capsys.readouterr().err
    assert ("takes one value" in shown, "--not-an-option" in shown) == (False, True)


def test_program_lists_all_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["--help"], context.real()) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"─ {title} ─") for title in ("Everyday", "Start", "Run", "Repair", "Deploy")]
    assert places == sorted(places)
    assert [name for name in COMMANDS if f"│ {name} " not in shown] == []


def test_version_needs_no_library() -> None:
    program = "import sys; sys.argv = ['gddl', '--version']; from airflow_gddl.cli.main import main\n"
    program += "try: main()\nfinally: print(sorted({'typer', 'rich', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split("\n")[1]) == (0, "[]")


def test_shell_completes_names_of_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = tmp_path / "metadata" / "tables"
    tables.mkdir(parents=True)
    (tables.parent / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    rows = "".join(f"  - {{table: {name}, keys: [id]}}\n" for name in ("shop.orders", "shop.order_lines", "crm.people"))
    (tables / "shop.yaml").write_text(f"source: shop\ntables:\n{rows}")
    command = f"gddl status --metadata {tables.parent} --table shop.or"
    asked = {**os.environ, "_GDDL_COMPLETE": "complete_bash", "COMP_WORDS": command, "COMP_CWORD": "5"}
    done = subprocess.run(
        [sys.executable, "-m", "airflow_gddl.cli.main"], env=asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["shop.order_lines", "shop.orders"]


@pytest.mark.parametrize(
    ("words", "near"), [(["runn"], "run"), (["valdate"], "validate"), (["errors", "lst"], "list"), (["xyzzy"], "")]
)
def test_a_misspelt_command_gets_a_suggestion(words: list[str], near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(words, context.real()) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert (f"Did you mean '{near}'?" in shown) == bool(near)
    assert f"No such command '{words[-1]}'" in shown
