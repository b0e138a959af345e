"""Differences that shadow has found: shown, and decided (docs/trust.md, Shadow)."""
