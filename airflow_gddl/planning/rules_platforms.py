"""Rules about Databricks and EMR Serverless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_gddl.planning.advice import Advice, advice
from airflow_gddl.planning.day import Day
from airflow_gddl.planning.figures import Figure, vcpus_of
from airflow_gddl.planning.limits import PlatformLimits


def _databricks(_day: Day, _limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    for name, found in figures.items():
        if name.startswith("databricks_") and not found.fits:
            yield advice(
                code="DATABRICKS_OVER_LIMIT",
                level="limit",
                message=f"{found.text}: {found.planned:,.0f}, where a workspace takes {found.limit:,.0f}",
                change="fewer DAGs (tiers.<tier>.tables_per_job above 1), a schedule that is less often, or a second"
                " workspace",
            )


def _queued(day: Day, _limits: PlatformLimits, _figures: Mapping[str, Figure]) -> Iterator[Advice]:
    if day.metadata.runner != "databricks":
        return
    most = day.metadata.databricks.max_concurrent_runs
    for pool in day.pools:
        tiers = sorted(day.tiers_by_pool[pool.pool])
        if pool.at_once > most * len(tiers):
            yield advice(
                code="RUNS_QUEUED",
                level="advice",
                message=f"pool {pool.pool} lets {pool.at_once:,} runs start, and Databricks queues all but {most:,}"
                " a job",
                change=f"runners.databricks.max_concurrent_runs: {most:,} → {pool.at_once:,}, then `gddl deploy"
                f" databricks`; or tiers.{tiers[0]}.slots: {pool.slots:,} → {most:,}",
            )


def _emr(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    found = figures.get("emr_vcpus")
    if found is None or found.fits:
        return
    parts = []
    for pool in day.pools:
        tier = max(sorted(day.tiers_by_pool[pool.pool]), key=lambda name: vcpus_of(day, name))
        parts.append(f"{pool.at_once:,} of {tier} with {vcpus_of(day, tier):,} each")
    if day.continuous:
        parts.append(f"{len(day.continuous):,} continuous ones")
    yield advice(
        code="EMR_OVER_QUOTA",
        level="limit",
        message=f"job runs ask for {found.planned:,.0f} vCPUs at once ({', '.join(parts)}); the account has"
        f" {limits.emr_vcpus:,}",
        change=f"a quota of {found.planned:,.0f} vCPUs (--emr-vcpus), or fewer tiers.<tier>.slots, cores or workers",
    )


PLATFORM_RULES = (_databricks, _queued, _emr)
