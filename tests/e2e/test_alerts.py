"""Alerts by the webhook of `[gddl] notify_connection`: of a failed load."""

from __future__ import annotations

from tests.e2e.site import Site
from tests.e2e.webhook import Webhook

BROKEN = "gddl.tell.broken"


def test_a_permanently_failing_load_sends_one_alert(site: Site, webhook: Webhook) -> None:
    site.land("tell.broken")
    site.refuse("tell.broken")
    run = site.runs.trigger(BROKEN)
    assert site.runs.wait_ended([run]) == {run: "failed"}
    failures = [message for message in webhook.about(BROKEN) if message["task_id"] == "initial_load"]
    assert [message["run_id"] for message in failures] == [run.run_id]
    assert "BROKEN_ON_PURPOSE" in failures[0]["text"]
