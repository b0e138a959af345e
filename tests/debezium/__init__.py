"""Debezium's events as sinks write them, for tests: from any rows, in each of the forms."""
