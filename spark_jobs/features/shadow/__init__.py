"""Batches that Spark's `MERGE` applies, too, to a clone of the table, and that are compared before their commit."""
