"""All tests; a package so that they share the oracle, the strategies and the landing files."""
