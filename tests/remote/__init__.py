"""Jobs that run elsewhere."""
