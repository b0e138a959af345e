"""vCPUs of EMR Serverless on a planned day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_gddl.capacity.day import Day
from airflow_gddl.capacity.plan import RunnerCapacity
from airflow_gddl.capacity.rules import Advice, Figure, PlatformLimits, advice, figure_of


def figures(day: Day, limits: PlatformLimits) -> list[Figure]:
    sizes = {pool: max(vcpus_of(day, tier) for tier in tiers) for pool, tiers in day.tiers_by_pool.items()}
    vcpus = sum(pool.at_once * sizes[pool.pool] for pool in day.pools)
    vcpus += sum(vcpus_of(day, pipeline.tier) for pipeline in day.continuous)
    return [figure_of("emr_vcpus", vcpus, limits.emr_vcpus, "vCPUs of EMR Serverless at once")]


def vcpus_of(day: Day, tier: str) -> int:
    """Of one job run on EMR Serverless: its driver and as many executors as it may have."""
    spec, tier_settings = day.metadata.tiers[tier], day.metadata.runner_settings.tier(tier)
    return spec.cores * (1 + max(spec.workers, tier_settings.max_executors or 0))


def _over_quota(day: Day, limits: PlatformLimits, planned: Mapping[str, Figure]) -> Iterator[Advice]:
    figure = planned.get("emr_vcpus")
    if figure is None or figure.fits:
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
        message=f"job runs ask for {figure.planned:,.0f} vCPUs at once ({', '.join(parts)}); the account has"
        f" {limits.emr_vcpus:,}",
        change=f"a quota of {figure.planned:,.0f} vCPUs (--emr-vcpus), or fewer tiers.<tier>.slots, cores or workers",
    )


CAPACITY = RunnerCapacity(figures=figures, rules=(_over_quota,))
