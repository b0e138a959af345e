"""Options of jobs by the names of their fields, for tests whose action is a parameter."""

from __future__ import annotations

import dataclasses
from typing import Any

from airflow_gddl.contract.actions import ACTIONS, Plan
from airflow_gddl.contract.spec import JobOptions


def options_of(action: str = "run", **given: Any) -> JobOptions:
    """
    Args:
        given: fields of the action and of `JobOptions`.
    """
    kind = ACTIONS[action]
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
