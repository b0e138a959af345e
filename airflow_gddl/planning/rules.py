"""All rules over a plan, the exceeded limits first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from airflow_gddl.planning.advice import Advice
from airflow_gddl.planning.day import Day
from airflow_gddl.planning.figures import Figure
from airflow_gddl.planning.limits import PlatformLimits
from airflow_gddl.planning.rules_airflow import AIRFLOW_RULES
from airflow_gddl.planning.rules_platforms import PLATFORM_RULES
from airflow_gddl.planning.rules_rows import ROW_RULES

Rule = Callable[[Day, PlatformLimits, Mapping[str, Figure]], Iterator[Advice]]


def advise(day: Day, limits: PlatformLimits, figures: tuple[Figure, ...]) -> tuple[Advice, ...]:
    """All advice; exceeded limits first, else in the order of the rules."""
    by_name = {figure.name: figure for figure in figures}
    rules: tuple[Rule, ...] = (*AIRFLOW_RULES, *PLATFORM_RULES, *ROW_RULES)
    found = [advice for rule in rules for advice in rule(day, limits, by_name)]
    return tuple(sorted(found, key=lambda advice: advice.level != "limit"))
