"""`gddl codes`: what codes mean, and what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.contract.codes import OPTION_INVALID, REGISTER
from airflow_gddl.contract.errors import MetadataError, documented


def codes(
    ctx: typer.Context,
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="Default: a line for each code.")] = None,
    json: options.Json = False,
) -> None:
    """Print what a code means, whether a retry helps, and what to do."""
    screen = context.of(ctx).screen
    if code is not None and code.upper() not in REGISTER:
        near = ", ".join(get_close_matches(code.upper(), REGISTER)) or "`gddl codes` lists all"
        raise MetadataError(OPTION_INVALID, f"no code is called {code!r:.80}", remedy=f"near: {near}")
    shown = [one for name, one in sorted(REGISTER.items()) if code is None or name == code.upper()]
    if json:
        screen.records(
            {"code": str(one), "kind": one.kind, "means": one.means, "remedy": one.remedy()} for one in shown
        )
    elif code is None:
        screen.table(["code", "kind", "means"], [(one, one.kind, one.means) for one in shown])
    else:
        for one in shown:
            screen.say(f"{one} ({one.kind}): {one.means}")
            screen.say(f"Remedy: {one.remedy() or one.do}\nMore: {documented('codes.md')}")
