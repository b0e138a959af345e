"""Slots that are short, on a live scheduler."""

from __future__ import annotations

from tests.e2e.site import Site


def test_the_most_urgent_starts_first_when_slots_are_short(site: Site) -> None:
    urgency = ("low", "normal", "high", "critical")
    for name in urgency:
        site.land(f"queue.{name}")
    hold = site.hold("queue.normal")
    first = site.runs.trigger("gddl.queue.normal")
    site.running.wait("the job that holds the slot", lambda: len(site.jobs("queue")) == 1)
    runs = [site.runs.trigger(f"gddl.queue.{name}") for name in ("low", "high", "critical")]
    ready = lambda: all(site.runs.tasks(run)["initial_load"] == "scheduled" for run in runs)  # noqa: E731 - as it reads
    site.running.wait("the others to be ready", ready)
    hold.unlink()
    site.runs.finish([first, *runs])
    order = [job["tables"][0].removeprefix("queue.") for job in site.jobs("queue")]
    assert order == ["normal", "critical", "high", "low"]
