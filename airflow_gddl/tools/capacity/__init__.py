"""Counts what the metadata gives before deployment: DAGs, task instances, starts; and what an edit changes."""
