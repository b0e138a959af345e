"""Snapshots of whole tables, taken by their differences (docs/snapshots.md)."""
