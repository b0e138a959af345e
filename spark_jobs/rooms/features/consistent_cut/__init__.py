"""What cuts keep of a table, for erasures and moves."""
