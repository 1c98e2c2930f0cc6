"""Stores as tables: mqstore on Apache Spark.

Needs the extra ``spark`` (``pip install 'mqstore[spark]'``); importing this package alone loads neither Spark nor
Arrow. ::

    spark = mqstore.spark.session("local[2]")
    messages = spark.read.format("rocketmq").load("data")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqstore.spark.runtime import SparkUnavailableError, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkUnavailableError", "register", "session"]


def register(spark: SparkSession) -> None:
    """Make the format ``rocketmq`` known to ``spark``.

    Spark finds it by itself when its Python is the one that mqstore is installed in; this is for when it does not.
    """
    from mqstore.spark.source import RocketmqSource

    spark.dataSource.register(RocketmqSource)
