"""Data between the two layouts: a Kafka log into a RocketMQ store, and the other way round. ::

    report = mqstore.convert.to_rocketmq("kafka-logs", "store")
    print(report.records, report.total_losses())

Nothing is lost that the report does not tell (docs/kafka.md, "Moving data").
"""

from mqstore.convert.from_lines import ImportReport, from_lines
from mqstore.convert.into_kafka import to_kafka
from mqstore.convert.into_rocketmq import to_rocketmq
from mqstore.convert.options import Aborted, ConvertOptions
from mqstore.convert.report import ConversionReport, Loss, PartitionReport

__all__ = [
    "Aborted",
    "ConversionReport",
    "ConvertOptions",
    "ImportReport",
    "Loss",
    "PartitionReport",
    "from_lines",
    "to_kafka",
    "to_rocketmq",
]
