"""Iceberg metadata of replicas, for readers that don't read Delta (docs/decisions/207). Needs pyiceberg."""
