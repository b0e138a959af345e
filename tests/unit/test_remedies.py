"""Remedies can be followed: each command that a message or docs/codes.md names is one that `gddl` takes as it stands,
and each field that a remedy names is one that can be written.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import typer.main

from airflow_gddl.cli.commands import COMMANDS as OF_GDDL
from airflow_gddl.cli.commands import app
from airflow_gddl.contract.extensions import CaptureSpec
from airflow_gddl.provider import get_provider_info
from tests.unit.pages import ROOT, SOURCES
from tests.unit.test_docs import TABLES, documented_codes

NAMES = "|".join(sorted(OF_GDDL, key=len, reverse=True))
COMMAND = re.compile(rf"`(gddl [^`]*)`|\bgddl (?:{NAMES})\b(?! import)[^`\n]*")
END = re.compile(r"[,;:)#&>]| {2,}|\.(?= |$)")
"""What follows a command that is not between backticks."""
VALUE = "x"
"""Stands for what a message fills in."""


def texts(tree: ast.Module) -> Iterator[str]:
    """The texts of a module that are no docstrings, with `VALUE` for what is filled in.

    The name of a command alone, such as `gddl erase`, is one where it is a remedy.
    """
    passed = {id(k.value) for node in ast.walk(tree) if isinstance(node, ast.Call) for k in node.keywords
              if k.arg == "remedy"}  # fmt: skip
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_name = re.fullmatch(r"gddl [a-z -]+", node.value) and id(node) not in passed
            yield from () if is_name or id(node) in parts else (node.value,)


def named_commands(text: str) -> Iterator[str]:
    for found in COMMAND.finditer(text):
        command = found[1] or END.split(found[0])[0]
        if command.split()[1] != VALUE:  # the name of a command is filled in
            yield command


def fault(command: str) -> str:
    """Why `gddl` does not take the command; empty: it does."""
    group: Any = typer.main.get_command(app)
    words = shlex.split(re.sub(rf"\b{VALUE}(?=--)|^gddl ", "", command))
    context: Any = None
    try:
        while hasattr(group, "resolve_command"):
            name, group, words = group.resolve_command(context, words)
            context = group.make_context(name, list(words), parent=context, resilient_parsing=False)
            words = [*getattr(context, "_protected_args", ()), *context.args]
            if not words and getattr(group, "invoke_without_command", False):
                break
    except LookupError:  # an option that prints and ends, as --settings
        return ""
    except Exception as error:  # noqa: BLE001 - click's, whose classes differ between its versions
        return f"{type(error).__name__} {getattr(error, 'message', '')}{getattr(error, 'param', None) or ''}"
    options = context.params
    needed = {"rebuild": "table" if not options.get("every") else "", "reload": "from_files"}.get(context.info_name)
    return f"{needed} is missing" if needed and not options[needed] else ""


COMMANDS = {
    command
    for path in SOURCES
    if path.relative_to(ROOT).parts[0] != "devtools" and "contract/codes" not in path.as_posix()
    for text in texts(ast.parse(path.read_text(encoding="utf-8")))
    for command in named_commands(text)
}
OF_CODES = {code: [*named_commands(remedy)] for code, _, _, remedy in documented_codes()}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_of_a_message_can_be_typed(command: str) -> None:
    assert fault(command.replace(f"gddl deploy {VALUE}", "gddl deploy glue")) == ""


@pytest.mark.parametrize("code", [code for code, found in OF_CODES.items() if found])
def test_each_command_of_a_code_can_be_typed(code: str) -> None:
    assert {command: why for command in OF_CODES[code] if (why := fault(command))} == {}


def test_a_command_that_lacks_something_is_found() -> None:
    wrong = ("load --again", "rebuild", "reload --table s.t", "run --tables s.t", "fix")
    assert [command for command in wrong if not fault(f"gddl {command}")] == []
    assert len(COMMANDS) > 70
    assert sum(map(len, OF_CODES.values())) > 80


# Fields

FIELD = re.compile(r"(?<![\w./$<%-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w(/.-])|(?<=`)[a-z]+(?=: )")
"""A word that no prose has, or the name before a value: `keys: [id]`."""
KNOWN = {
    *(name for fields_of in TABLES.values() for name in fields_of),
    *(field.name for field in fields(CaptureSpec)),
    *get_provider_info()["config"]["gddl"]["options"],
    "by_time",  # a value of `generations`
    *("gddl_maintenance", "gddl_rerun", "emr_serverless"),  # DAGs, a runner
}
OTHERS = {
    *("build_dags", "on_dag"),  # in a DAG file
    "changes",  # a table, in a sample
    *("pg_stat_activity", "pg_terminate_backend"),
    *("aws_default", "closing_2026_01", "qty_ok"),  # examples
}


def remedies(tree: ast.Module) -> Iterator[str]:
    """What is passed as a remedy, or assigned to one before."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (text for k in node.keywords if k.arg == "remedy" for text in texts_of(k.value))
        elif isinstance(node, ast.Assign) and "remedy" in ast.unparse(node.targets[0]).lower():
            yield from texts_of(node.value)


def texts_of(node: ast.expr) -> Iterator[str]:
    yield from texts(ast.Module([ast.Return(node)], []))


OF_SOURCES = {
    (text, word)
    for path in SOURCES
    for text in remedies(ast.parse(path.read_text(encoding="utf-8")))
    for word in FIELD.findall(text)
}


def test_each_field_of_a_remedy_can_be_written() -> None:
    found = OF_SOURCES | {(code, word) for code, *_, remedy in documented_codes() for word in FIELD.findall(remedy)}
    assert len(found) > 130
    assert {one for one in found if one[1] not in KNOWN | OTHERS} == set()
    assert "source_table" not in KNOWN


NO_SENTENCE = re.compile(r"(?<!there )\bis none\b(?! of)|\bsee details\b")


def test_messages_are_sentences() -> None:
    """Whoever reads `--at is none`, or is sent to a field of a result that is not shown, is not helped."""
    found = {text for path in SOURCES for text in texts(ast.parse(path.read_text(encoding="utf-8")))}
    assert [text for text in found if NO_SENTENCE.search(text)] == []
