"""The table in which AWS DMS records changes that it could not apply."""
