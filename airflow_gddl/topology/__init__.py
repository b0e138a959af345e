"""Maps tables and tiers to pipelines: DAGs, their ids and schedules. Pure; nothing is imported here."""
