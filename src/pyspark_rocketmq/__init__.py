"""Spark looks for modules of this kind of name to find data sources: this one gives it the format ``rocketmq``."""

from mqstore.spark.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
