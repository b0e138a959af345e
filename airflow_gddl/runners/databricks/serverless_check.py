"""`gddl check` on Databricks: whether jobs on serverless compute reach landing and lake, tried by a run there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from functools import partial

from airflow_gddl.contract.codec import to_document
from airflow_gddl.contract.codes import ROOT_UNUSABLE
from airflow_gddl.contract.errors import FatalError, documented
from airflow_gddl.contract.layout import spec_path
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runners.databricks.settings import DatabricksSettings
from airflow_gddl.runners.descriptor import Probe, RunnerCheck, make_platform, settings_of
from airflow_gddl.runners.interface import FromEnvironment, Platform, RunRequest
from airflow_gddl.runners.remote import pauses
from airflow_gddl.stores import open_store

PATIENCE_SECONDS = 1200.0
"""How long a run may take to get machines and end."""
_FIRST_PAUSE = 2.0


def check(given: RunnerCheck) -> Iterator[tuple[str, Probe]]:
    """A probe for each serverless tier; others have the credentials of their instance profile."""
    settings = settings_of(given.name, DatabricksSettings, given.declared)
    for size in sorted(given.tiers):
        if settings.tier(size).serverless:
            yield f"serverless tier {size}", partial(probe, given, size)


def probe(given: RunnerCheck, size: str, patience: float = PATIENCE_SECONDS) -> str:
    """Run the tier's saved job without tables: it lists landing, and writes, reads and removes a file of the lake.

    Raises:
        FatalError: `ROOT_UNUSABLE`: the run failed, or did not end; `JOB_NOT_DEPLOYED`, or as `Platform`.
        RetriableError: as `Platform`.
    """
    platform = make_platform(given.name, given.declared, given.environ, FromEnvironment())
    run_id = f"check-{secrets.token_hex(8)}"
    tier = given.tiers[size]
    store, path = open_store(given.environ), spec_path(given.roots.lake, run_id)
    store.create(path, to_document(JobSpec(run_id=run_id, roots=given.roots, tables=(), tiers={size: tier})).encode())
    try:
        return _tried(platform, RunRequest(run_id=run_id, spec=path, size=size, tier=tier, token=run_id), patience)
    finally:
        store.delete(path)


def _tried(platform: Platform, request: RunRequest, patience: float) -> str:
    handle = platform.submit(request)
    ends = time.monotonic() + patience
    for pause in pauses(_FIRST_PAUSE):
        status = platform.poll(handle)
        if status.has_ended:
            break
        if time.monotonic() > ends:
            platform.cancel(handle)
            raise _refused(f"run {handle.run} has not ended after {patience:.0f} s and was cancelled", handle.page)
        time.sleep(pause)
    if status.state != "succeeded":
        raise _refused(f"run {handle.run} {status.state}: {status.message}", handle.page)
    return f"run {handle.run} listed the landing root, and wrote, read and removed a file of the lake"


def _refused(what: str, page: str) -> FatalError:
    remedy = f"set serverless: false with node_type and instance_profile; {documented('platforms/databricks.md')}"
    return FatalError(ROOT_UNUSABLE, f"jobs there can't use landing and lake: {what}", where=page, remedy=remedy)
