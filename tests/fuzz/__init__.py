"""Hostile and damaged input: whatever it is, it is reported for what it is, and nothing else stops."""
