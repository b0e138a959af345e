"""Checks of the CDC service's settings by its files: `reading` reads, `rules` are pure, `findings` name the
settings."""
