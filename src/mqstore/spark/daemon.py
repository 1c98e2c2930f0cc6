"""The process of Spark that makes the Python workers of this machine: pyspark's own, with workers that go in silence.

Spark begins it as ``python -m mqstore.spark.daemon pyspark.worker`` (``spark.python.daemon.module``).
"""

from pyspark.daemon import manager

from mqstore.spark.worker import leave_when_idle

if __name__ == "__main__":
    leave_when_idle()  # a fork keeps it
    manager()
