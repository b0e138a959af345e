"""Actions of a run other than loading new files."""
