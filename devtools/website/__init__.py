"""What builds the documentation site beyond mkdocs: pages that are made of the code, so that they can't be wrong."""
