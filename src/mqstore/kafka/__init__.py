"""Kafka's segment layout as a working store: read real data directories without a broker, and write them.

::

    import mqstore.kafka as kafka
    from mqstore.kafka import KafkaMessage

    with kafka.open("data") as store:
        store.put(KafkaMessage("orders", b"...", key=b"o-1"))

    with kafka.inspect("data") as view:            # read-only, without the lock, also beside a running broker
        for record in view.partition("orders", 0).records():
            print(record.offset, record.key, record.value)
"""

from mqstore.kafka.check import check
from mqstore.kafka.cleaner import CleanResult
from mqstore.kafka.compare import OffsetRange, PartitionComparison, compare
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.lookup import OffsetTime
from mqstore.kafka.message import GetResult, Isolation, KafkaMessage, PutResult
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.producer import Producer
from mqstore.kafka.repair import RecoveryReport, recover, reindex
from mqstore.kafka.stats import PartitionStats
from mqstore.kafka.store import KafkaStore
from mqstore.kafka.store import open_store as open
from mqstore.kafka.view import KafkaView
from mqstore.kafka.view import KafkaView as inspect
from mqstore.layout.kafka.record import Record

__all__ = [
    "BatchDamage",
    "CleanResult",
    "GetResult",
    "Isolation",
    "KafkaConfig",
    "KafkaMessage",
    "KafkaStore",
    "KafkaView",
    "OffsetRange",
    "OffsetTime",
    "PartitionComparison",
    "PartitionStats",
    "PartitionView",
    "Producer",
    "PutResult",
    "Record",
    "RecoveryReport",
    "check",
    "compare",
    "inspect",
    "open",
    "recover",
    "reindex",
]
