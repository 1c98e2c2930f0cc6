"""mqstore: an Apache RocketMQ-compatible message store.

Everything meant for use is here::

    import mqstore
    from mqstore import Message

    with mqstore.open("data") as store:
        store.put(Message("orders", b"...", tags="paid", keys=["o-1"]))

    view = mqstore.inspect("data")    # read-only, without a lock, beside a running writer

Nothing heavy is loaded with it: Spark, Arrow and NumPy come in with :mod:`mqstore.spark` only.
"""

from mqstore.errors import (
    CorruptConfigError,
    CorruptFileError,
    CorruptRecordError,
    DamageError,
    DiskFullError,
    MessageIllegalError,
    MqstoreError,
    NotAStoreError,
    NotWritableError,
    StoreClosedError,
    StoreIOError,
    StoreLockedError,
    UsageError,
)
from mqstore.layout.queue_unit import QueueUnit
from mqstore.layout.record import Record
from mqstore.layout.sql92 import SqlExpression, sql
from mqstore.status import BoundaryType, GetMessageStatus, PutMessageStatus
from mqstore.store.config import FlushDiskType, StoreConfig
from mqstore.store.consumer import Consumer
from mqstore.store.expiry import DiskBand, ExpiryReport
from mqstore.store.get_table import GetTableResult
from mqstore.store.message import GetResult, Message, PutResult, QueryResult, QueueInfo
from mqstore.store.opening import open_store as open
from mqstore.store.rebuild import RebuildResult, rebuild, truncate
from mqstore.store.store import Store
from mqstore.store.table import PutTableResult
from mqstore.store.transactions import Transaction, TransactionState
from mqstore.store.view import StoreView
from mqstore.store.view import StoreView as inspect

__version__ = "0.1.0"

__all__ = [
    "BoundaryType",
    "Consumer",
    "CorruptConfigError",
    "CorruptFileError",
    "CorruptRecordError",
    "DamageError",
    "DiskBand",
    "DiskFullError",
    "ExpiryReport",
    "FlushDiskType",
    "GetMessageStatus",
    "GetResult",
    "GetTableResult",
    "Message",
    "MessageIllegalError",
    "MqstoreError",
    "NotAStoreError",
    "NotWritableError",
    "PutMessageStatus",
    "PutResult",
    "PutTableResult",
    "QueryResult",
    "QueueInfo",
    "QueueUnit",
    "RebuildResult",
    "Record",
    "SqlExpression",
    "Store",
    "StoreClosedError",
    "StoreConfig",
    "StoreIOError",
    "StoreLockedError",
    "StoreView",
    "Transaction",
    "TransactionState",
    "UsageError",
    "inspect",
    "open",
    "rebuild",
    "sql",
    "truncate",
]
