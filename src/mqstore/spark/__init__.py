"""Stores as tables: mqstore on Apache Spark.

Needs the extra ``spark`` (``pip install 'mqstore[spark]'``); importing this package alone loads neither Spark nor
Arrow. ::

    spark = mqstore.spark.session("local[2]")
"""

from mqstore.spark.runtime import SparkUnavailableError, session

__all__ = ["SparkUnavailableError", "session"]
