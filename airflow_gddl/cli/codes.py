"""`gddl codes`: what codes mean, and what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.contract.codes import REGISTER
from airflow_gddl.contract.documentation import of_code
from airflow_gddl.contract.errors import invalid_option


def codes(
    ctx: typer.Context,
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="Default: a line for each code.")] = None,
    json: options.Json = False,
) -> None:
    """Print what a code means, whether a retry helps, and what to do."""
    screen, name = context.of(ctx).screen, (code or "").upper()
    if name and name not in REGISTER:
        near = ", ".join(get_close_matches(name, REGISTER)) or "`gddl codes` lists all"
        raise invalid_option(f"no code is called {code!r:.80}", f"near: {near}")
    shown = [REGISTER[name]] if name else [REGISTER[one] for one in sorted(REGISTER)]
    if json:
        screen.records(
            {"code": str(one), "kind": one.kind, "means": one.meaning, "remedy": one.remedy()} for one in shown
        )
    elif name:
        screen.say(f"{name} ({shown[0].kind}): {shown[0].meaning}\nRemedy: {of_code(name)}")
    else:
        screen.table(["code", "kind", "means"], [(one, one.kind, one.meaning) for one in shown])
