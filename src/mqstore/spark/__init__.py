"""Stores as tables: mqstore on Apache Spark.

Needs the extra ``spark`` (in a checkout: ``pip install '.[spark]'``); importing this package alone loads neither Spark
nor Arrow. ::

    spark = mqstore.spark.session("local[2]")
    messages = spark.read.format("rocketmq").load("data")
    whole_rows = mqstore.spark.read(spark, "data")
    mqstore.spark.jobs.export(spark, "data", "data.parquet")
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from mqstore.spark.frames import read
from mqstore.spark.installed import SparkUnavailableError
from mqstore.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqstore.spark import jobs

__all__ = ["SparkUnavailableError", "jobs", "read", "register", "session"]


def register(spark: SparkSession) -> None:
    """Make the formats ``rocketmq`` and ``kafkalog`` known to ``spark``.

    Spark finds them by itself when its Python is the one that mqstore is installed in; this is for when it does not.
    """
    from mqstore.spark.kafka_source import KafkaLogSource
    from mqstore.spark.source import RocketmqSource

    spark.dataSource.register(RocketmqSource)
    spark.dataSource.register(KafkaLogSource)


def __getattr__(name: str) -> ModuleType:
    """``mqstore.spark.jobs``, loaded when first used: it needs Arrow and NumPy."""
    if name == "jobs":
        return importlib.import_module("mqstore.spark.jobs")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
