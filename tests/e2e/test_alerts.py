"""Alerts by the webhook of `[gddl] notify_connection`: of a run that is late while it is, of a failed load."""

from __future__ import annotations

import pytest

from airflow_gddl.version_compat import clear_fails_with_deadlines
from tests.e2e.site import IS_3_0, Site
from tests.e2e.webhook import Webhook

LATE, BROKEN = "gddl.tell.late", "gddl.tell.broken"


@pytest.mark.deep
@pytest.mark.skipif(IS_3_0 or clear_fails_with_deadlines(), reason="DAGs declare a deadline in Airflow 3.1 and 3.2")
def test_a_run_longer_than_the_freshness_sends_an_alert_while_it_runs(site: Site, webhook: Webhook) -> None:
    site.land("tell.late")
    hold = site.hold("tell.late")
    run = site.runs.trigger(LATE)
    of_run = lambda: [message for message in webhook.about(LATE) if message["late"]]  # noqa: E731 - as it reads
    site.running.wait("a message at the webhook", of_run, 120)
    hold.unlink()
    site.runs.finish([run])
    (message,) = of_run()
    assert message["run_id"] == run.run_id
    # On a slow machine the file waits for so long that the table is late, too.
    others = [other["text"] for other in webhook.about(LATE) if not other["late"]]
    assert all("FRESHNESS_MISSED" in text for text in others), others
    assert message["text"] == f"{LATE} {run.run_id} takes longer than the freshness of its table"


def test_a_permanently_failing_load_sends_one_alert(site: Site, webhook: Webhook) -> None:
    site.land("tell.broken")
    site.refuse("tell.broken")
    run = site.runs.trigger(BROKEN)
    assert site.runs.wait_ended([run]) == {run: "failed"}
    failures = [message for message in webhook.about(BROKEN) if message["task_id"] == "initial_load"]
    assert [message["run_id"] for message in failures] == [run.run_id]
    assert "BROKEN_ON_PURPOSE" in failures[0]["text"]
