"""Iceberg metadata of replicas and histories, for readers that don't read Delta. Needs pyiceberg."""
