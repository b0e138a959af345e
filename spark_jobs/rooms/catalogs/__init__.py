"""Tables registered in catalogs, so that readers find them by name; see docs/catalogs.md."""
