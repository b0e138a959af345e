"""Glue: its settings need no package, `jobs` and `platform` need boto3 (extra `glue`)."""
