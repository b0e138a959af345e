"""Platforms on this machine, for tests and for trying things out: they speak the real protocol and really run jobs."""
