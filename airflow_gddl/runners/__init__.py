"""Runners: each takes a JobSpec and returns one JobResult for each table."""
