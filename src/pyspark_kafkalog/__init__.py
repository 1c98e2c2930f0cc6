"""Spark looks for modules of this kind of name to find data sources: this one gives it the format ``kafkalog``."""

from mqstore.spark.kafka_source import KafkaLogSource as DefaultSource

__all__ = ["DefaultSource"]
