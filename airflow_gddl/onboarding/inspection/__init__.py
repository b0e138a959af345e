"""The CDC service's settings, judged by its files: `looking` reads, `rules` are pure, `findings` say what to set."""
