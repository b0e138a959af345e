"""A topic of Kafka, read into change files (docs/debezium.md)."""
