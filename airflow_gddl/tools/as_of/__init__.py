"""`gddl as-of`: all tables of a source as it had them at one commit."""
