"""Shows a plan: figures with limits, tiers, pools, the day by the minute, and advice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn, number_columns
from airflow_gddl.cli.text import count, counted, duration
from airflow_gddl.contract.spec import AirflowView
from airflow_gddl.planning import Plan
from airflow_gddl.planning.figures import Figure
from airflow_gddl.planning.pools import PoolUse

_BARS = " ▁▂▃▄▅▆▇█"
_QUIET = "·"
_NAMED = 5
_RULER = "     " + "".join(f":{minute:02d}".ljust(15) for minute in (0, 15, 30, 45)) + "  an hour"


def show(screen: Screen, plan: Plan) -> None:
    """Show everything, the advice last."""
    kinds = ", ".join(f"{many:,} {kind}" for kind, many in plan.started_by.items())
    screen.say(
        f"{counted(plan.tables, 'table')} in {plan.dags:,} DAGs ({kinds}, 2 of upkeep), runner {plan.runner}", "bold"
    )
    _table(screen, ("", *number_columns("planned", "limit"), ""), [_figure(figure) for figure in plan.figures])
    _tiers(screen, plan)
    slots = number_columns("slots", "wanted", "taken", "longest wait")
    _table(screen, ("pool", *slots, ""), [_pool(pool) for pool in plan.pools])
    screen.say("")
    screen.say(f"{counted(plan.runs, 'run')} on {plan.day}, by the minute (UTC)", "bold")
    for line in histogram(plan.runs_per_minute, _limit(plan)):
        screen.spans(line)
    screen.say("")
    for peak in plan.peaks:
        schedules = ", ".join(f"{many:,} of {schedule}" for schedule, many in list(peak.schedules.items())[:3])
        screen.say(f"{peak.minute}  {count(peak.runs):>5} run{'' if peak.runs == 1 else 's'}: {schedules}")
    for move in moves(plan):
        screen.say(move)
    _advice(screen, plan)


def moves(plan: Plan) -> Iterator[str]:
    """Tables that change their DAG, one line for each pair of DAGs, truncated."""
    pairs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for table, pair in plan.moves.items():
        pairs[pair].append(table)
    if pairs:
        yield f"\n{counted(len(plan.moves), 'table')} will be loaded by another DAG; the old one ends its runs"
    for (before, after), tables in sorted(pairs.items()):
        more = f" and {count(len(tables) - _NAMED)} more" if len(tables) > _NAMED else ""
        yield f"{before} -> {after}: {', '.join(tables[:_NAMED])}{more}"


def _tiers(screen: Screen, plan: Plan) -> None:
    numbers = number_columns("tables", "DAGs", "runs", "a table", "a full run")
    rows = [
        (
            tier.tier,
            count(tier.tables),
            count(tier.dags),
            count(tier.runs),
            duration(tier.table_seconds),
            duration(tier.run_seconds),
            tier.engine,
            tier.basis,
            _views(tier.views),
        )
        for tier in plan.tiers
    ]
    _table(screen, ("tier", *numbers, "engine", "seconds from", "Airflow shows"), rows)


def _views(views: Mapping[AirflowView, int]) -> str:
    """The view of all tables, or how many have which."""
    return next(iter(views)) if len(views) == 1 else ", ".join(f"{many:,} {view}" for view, many in views.items())


def _table(screen: Screen, heads: Sequence[ScreenColumn | str], rows: Sequence[Sequence[Cell | str]]) -> None:
    screen.say("")
    screen.table(heads, rows)


def _figure(figure: Figure) -> list[Cell | str]:
    above = ("tight", "yellow") if figure.soft else ("TOO MUCH", "bold red")
    verdict, style = ("fits", "green") if figure.fits else above
    limit = "" if figure.limit is None else count(round(figure.limit))
    return [figure.text, count(round(figure.planned)), limit, Cell(verdict if figure.limit is not None else "", style)]


def _pool(pool: PoolUse) -> list[Cell | str]:
    verdict = "" if pool.needed <= pool.slots else f"needs {pool.needed:,}"
    wait = f"{duration(pool.longest_wait)}" if pool.longest_wait else ""
    return [
        pool.pool,
        count(pool.slots),
        count(pool.demand),
        f"{100 * pool.busy:.0f} %",
        wait,
        Cell(verdict, "bold red"),
    ]


def _limit(plan: Plan) -> float:
    return next((figure.limit for figure in plan.figures if figure.name == "starts" and figure.limit), 1.0)


def histogram(per_minute: Sequence[int], limit: float) -> Iterator[list[Cell]]:
    """A line for each hour: a bar for each minute, full at the limit, red above it.

    Args:
        per_minute: of the 1,440 minutes of a day.
    """
    yield [Cell(_RULER, "dim")]
    for hour in range(24):
        minutes = per_minute[60 * hour : 60 * hour + 60]
        bars = [Cell(_bar(runs, limit), _style(runs, limit)) for runs in minutes]
        yield [Cell(f"{hour:02d}h  ", "dim"), *bars, Cell(f"  {sum(minutes):>7,}")]


def _bar(runs: int, full: float) -> str:
    # Bars are rounded up, so that every run is visible.
    return _QUIET if runs == 0 else _BARS[max(1, min(8, -int(-8 * runs // full)))]


def _style(runs: int, limit: float) -> str:
    if runs == 0:
        return "dim"
    return "bold red" if runs > limit else "yellow" if runs > limit / 2 else "green"


def _advice(screen: Screen, plan: Plan) -> None:
    screen.say("")
    if not plan.advice:
        screen.say("nothing to change", "green")
    for advice in plan.advice:
        style = "bold red" if advice.level == "limit" else "yellow"
        screen.spans([Cell(f"[{advice.code}] ", style), Cell(advice.message)])
        screen.spans([Cell("    change ", "bold"), Cell(advice.change)])
        if advice.tables:
            more = f" and {advice.count - len(advice.tables):,} more" if advice.count > len(advice.tables) else ""
            screen.spans([Cell("    tables ", "bold"), Cell(", ".join(advice.tables) + more)])
    if not plan.fits:
        screen.say("")
        screen.say("a limit is exceeded", "bold red")
