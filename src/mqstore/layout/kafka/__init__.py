"""The bytes of Kafka's segment layout: record batches of all formats and the small files around them; no I/O."""
