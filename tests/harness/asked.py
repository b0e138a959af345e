"""Options of jobs by the names of their fields, for tests whose action is a parameter."""

from __future__ import annotations

import dataclasses
from typing import Any

from airflow_gddl.contract.actions import ACTIONS, Plan
from airflow_gddl.contract.spec import JobOptions

_MODES = {
    "errors_list": ("handle_errors", "list"), "errors_replay": ("handle_errors", "replay"),
    "errors_dismiss": ("handle_errors", "dismiss"), "adopt_release": ("adopt", "release"),
}  # fmt: skip
DOES = {*ACTIONS, *_MODES}
"""What results call actions, and the names of these."""


def options_of(action: str = "run", **given: Any) -> JobOptions:
    """
    Args:
        action: its name, or what results call it.
        given: fields of the action and of `JobOptions`.
    """
    name, mode = _MODES.get(action, (action, ""))
    kind, given = ACTIONS[name], {"mode": mode, **given} if mode else given
    own = {field.name for field in dataclasses.fields(kind)} & given.keys()
    others = {name: value for name, value in given.items() if name not in own}
    return JobOptions(action=kind(**{name: given[name] for name in own}), **others)


def with_asked(options: JobOptions, **given: Any) -> JobOptions:
    """The options with other fields of the action."""
    return dataclasses.replace(options, action=dataclasses.replace(options.action, **given))


def planned(options: JobOptions) -> JobOptions:
    """A plan of what the options load."""
    assert options.load is not None
    return dataclasses.replace(options, action=Plan(of=options.load))
