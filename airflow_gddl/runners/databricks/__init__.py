"""Databricks: its settings need no package, `jobs` and `platform` need its SDK (extra `databricks`)."""
