"""`gddl check --platform`: each check passes where all is well, and is seen failing with its fault."""
