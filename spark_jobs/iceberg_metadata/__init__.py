"""Iceberg metadata of Delta tables, written by pyiceberg; see docs/decisions/207."""
