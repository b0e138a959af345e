"""What a run does other than bring its table up to date from its files."""
