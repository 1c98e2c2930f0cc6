"""How a store is opened: what a ``broker.conf`` says, under RocketMQ's names in snake_case and with its defaults.

What is kept about topics and groups while it runs is in :mod:`mqstore.store.settings`.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mqstore import errors
from mqstore.layout import delay
from mqstore.layout.bloom import BloomFilter
from mqstore.layout.constants import DEFAULT_HASH_SLOTS, DEFAULT_INDEX_ENTRIES, INT_MAX, LONG_MAX
from mqstore.layout.hosts import encode_host
from mqstore.layout.index import file_size as index_file_size


class FlushDiskType(str, enum.Enum):
    """When ``put`` returns (docs/operations.md, section on promises)."""

    SYNC_FLUSH = "SYNC_FLUSH"
    """The log bytes are on the device: survives power loss."""
    ASYNC_FLUSH = "ASYNC_FLUSH"
    """The log bytes are in the page cache: survives the process, loses up to the flush interval at power loss."""


_LONGS = ("filter_data_clean_time_span", "transaction_time_out")
"""Settings that a broker keeps in 64 bits; all other numbers have 32."""


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Settings of one store. Sizes in bytes, times in milliseconds, as the names say in RocketMQ.

    Every field bears the name of the RocketMQ setting (``mappedFileSizeCommitLog`` is
    ``mapped_file_size_commit_log``) and its default. The four file sizes left at None are taken from the files that
    a directory already holds, and are RocketMQ's defaults in a new one.
    """

    mapped_file_size_commit_log: int | None = None
    """Length of a commit log file; 1 GiB in a new store."""
    mapped_file_size_consume_queue: int | None = None
    """Length of a consume queue file, a multiple of 20; 6,000,000 in a new store."""
    max_hash_slot_num: int | None = None
    """Hash slots of an index file; 5,000,000 in a new store."""
    max_index_num: int | None = None
    """Entries of an index file, one of them unused; 20,000,000 in a new store."""

    store_path_commit_log: str | None = None
    """Directories of the log, divided by commas, which its files are spread over; None is what the store has noted,
    ``commitlog`` below its root in a new one."""
    read_only_commit_log_store_paths: str | None = None
    """Directories, divided by commas, whose log files belong to the store and which get no new ones."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log: int = 500
    """Milliseconds between syncs of the log under ASYNC_FLUSH."""
    flush_interval_consume_queue: int = 1000
    """Milliseconds between syncs of the queues' files."""
    flush_consume_queue_thorough_interval: int = 60_000
    """Milliseconds between checkpoints of the derived files."""
    sync_flush_timeout: int = 5_000
    """Milliseconds a SYNC_FLUSH put waits before it answers FLUSH_DISK_TIMEOUT."""

    warm_maped_file_enable: bool = False
    """Make the next log file ahead in the background, with all its space and its pages at hand."""
    flush_least_pages_when_warm_maped_file: int = 4096
    """Pages after which such a file is synced under SYNC_FLUSH."""
    transient_store_pool_enable: bool = False
    """Under ASYNC_FLUSH, put into buffers in memory, which are committed to the log's files at intervals. What is not
    committed can be read by nobody, and a process that dies loses it (docs/operations.md)."""
    transient_store_pool_size: int = 5
    """How many such buffers there are, each of the size of a log file; a file that finds none is written directly."""
    fast_fail_if_no_buffer_in_store_pool: bool = False
    """Refuse messages when a new file would be needed and no buffer is left."""
    commit_interval_commit_log: int = 200
    """Milliseconds between commits."""
    commit_commit_log_least_pages: int = 4
    """Pages of 4096 bytes that a commit waits for,"""
    commit_commit_log_thorough_interval: int = 200
    """but not longer than so many milliseconds."""

    max_message_size: int = 4 << 20
    """Largest body in bytes; :attr:`mqstore.Store.max_message_size` changes it while the store is open."""
    message_index_enable: bool = True
    message_delay_level: str | None = None
    """Times of the delay levels, as ``1s 5s 1m``; None is what the store notes, and RocketMQ's for a new one."""
    default_topic_queue_nums: int = 8
    """Queues given to a topic that is first seen in a put."""
    auto_create_topic_enable: bool = True

    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_filter_message_size: int = 16_000
    """Bytes of queue units looked at by one get, at least 20 for each message asked for."""
    max_msgs_num_batch: int = 64
    """Most messages one key query gives, unless it asks for more."""

    enable_consume_queue_ext: bool = False
    """Keep extension files beside the queues, with when each message was stored and which subscriptions it passes."""
    mapped_file_size_consume_queue_ext: int = 48 << 20
    """Length of an extension file in a queue that has none yet."""
    enable_calc_filter_bit_map: bool = False
    """Note in them which conditions of consumer groups each message fulfils, and read by these notes."""
    max_error_rate_of_bloom_filter: int = 20
    """Percent of messages that may be looked at in vain, 1 to 99, with"""
    expect_consumer_num_use_filter: int = 32
    """so many groups."""
    filter_data_clean_time_span: int = 24 * 3600 * 1000
    """Milliseconds that the condition of a group is kept after its last consumer has gone."""

    enable_multi_dispatch: bool | None = None
    """Put messages into the queues that their property ``INNER_MULTI_DISPATCH`` names, too; None is what the store has
    done so far, off in a new one. With"""
    enable_lmq: bool | None = None
    """names that begin with ``%LMQ%`` are light queues: one queue with id 0 each, whatever queue the message is in."""

    schedule_message_enable: bool = True
    """Deliver delayed messages when they are due. Ours; a master broker always does, a slave never."""
    transaction_time_out: int = 6_000
    """Milliseconds a half message is left alone before its producer's checker is asked about it."""
    transaction_check_max: int = 15
    """How often the checker is asked; then the message goes to ``TRANS_CHECK_MAX_TIME_TOPIC``."""
    transaction_check_interval: int = 60_000

    expire_automatically: bool = False
    """Remove old files as a broker does, by the settings below; on in a configuration read from ``broker.conf``. Ours:
    an embedded store whose owner did not ask for it loses nothing (``Store.expire`` does it by hand)."""
    file_reserved_time: int = 72
    """Hours that a log file is kept after its last write."""
    delete_when: str = "04"
    """Hours of the day, local time, two digits, separated by ``;``, at which old files are removed."""
    disk_max_used_space_ratio: int = 75
    """Percent of the disk in use above which old files are removed at any hour; 10 to 95."""
    disk_space_clean_forcibly_ratio: int = 85
    """Percent above which the oldest files are removed whatever their age."""
    disk_space_warning_level_ratio: int = 90
    """Percent above which no message is taken."""
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = 10_000
    delete_file_batch_max: int = 10
    """Most log files removed in one round."""

    broker_name: str = "DEFAULT_BROKER"
    broker_ip1: str = "127.0.0.1"
    listen_port: int = 10911

    def __post_init__(self) -> None:
        self._check_kinds()
        for name in (
            "mapped_file_size_commit_log",
            "mapped_file_size_consume_queue",
            "max_hash_slot_num",
            "max_index_num",
            "max_message_size",
            "default_topic_queue_nums",
            "sync_flush_timeout",
            "flush_interval_commit_log",
            "flush_interval_consume_queue",
            "commit_interval_commit_log",
            "transient_store_pool_size",
            "mapped_file_size_consume_queue_ext",
            "flush_least_pages_when_warm_maped_file",
            "transaction_check_interval",
            "clean_resource_interval",
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise _bad_value(name, "a whole number above 0", value)
        if self.max_index_num is not None and self.max_index_num < 2:
            raise _bad_value("max_index_num", "at least 2, since entry 0 is never used", self.max_index_num)
        least_buffers = 3 if self.warm_maped_file_enable else 2
        if self.fast_fail_if_no_buffer_in_store_pool and self.transient_store_pool_size < least_buffers:
            # One file is written to and the next one needs its buffer before the first has given up its own.
            raise _bad_value("transient_store_pool_size", f"at least {least_buffers}", self.transient_store_pool_size)
        index_bytes = index_file_size(
            self.max_hash_slot_num or DEFAULT_HASH_SLOTS, self.max_index_num or DEFAULT_INDEX_ENTRIES
        )
        if index_bytes > INT_MAX:
            raise _bad_value("max_index_num", f"with the slots, a file of at most {INT_MAX} bytes", self.max_index_num)
        size = self.mapped_file_size_consume_queue
        if size is not None:
            if size > INT_MAX - INT_MAX % 20:
                raise _bad_value("mapped_file_size_consume_queue", f"at most {INT_MAX - INT_MAX % 20}", size)
            # RocketMQ rounds up to whole units, and so must we to name files alike.
            object.__setattr__(self, "mapped_file_size_consume_queue", -(-size // 20) * 20)
        try:
            object.__setattr__(self, "flush_disk_type", FlushDiskType(self.flush_disk_type))
        except ValueError:
            raise _bad_value("flush_disk_type", "SYNC_FLUSH or ASYNC_FLUSH", self.flush_disk_type) from None
        if self.message_delay_level is not None:
            delay.parse_delay_levels(self.message_delay_level)
        BloomFilter.sized(self.max_error_rate_of_bloom_filter, self.expect_consumer_num_use_filter)
        if not all(re.fullmatch("[01][0-9]|2[0-3]", hour) for hour in self.delete_when.split(";")):
            raise _bad_value("delete_when", "hours of two digits, as 04 or 04;16", self.delete_when)
        object.__setattr__(self, "disk_max_used_space_ratio", min(95, max(10, self.disk_max_used_space_ratio)))
        encode_host(f"{self.broker_ip1}:{self.listen_port}")

    def _check_kinds(self) -> None:
        for field in dataclasses.fields(self):
            number: object = getattr(self, field.name)
            if field.type == "str | None" and not (number is None or (isinstance(number, str) and number)):
                raise _bad_value(field.name, "text", number)
            if field.type == "bool | None" and not (number is None or isinstance(number, bool)):
                raise _bad_value(field.name, "true or false", number)
            if field.type in ("str", "bool") and type(number).__name__ != field.type:
                raise _bad_value(field.name, {"str": "text", "bool": "true or false"}[field.type], number)
            if field.type == "int" and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
                raise _bad_value(field.name, "a whole number", number)
            most = LONG_MAX if field.name in _LONGS else INT_MAX  # as a broker keeps them
            if isinstance(number, int) and number > most:
                raise _bad_value(field.name, f"at most {most}", number)

    @cached_property
    def store_host(self) -> bytes:
        """``broker_ip1:listen_port`` as the record field (docs/format/commit-log.md)."""
        return encode_host(f"{self.broker_ip1}:{self.listen_port}")

    @classmethod
    def from_mapping(cls, settings: dict[str, Any]) -> StoreConfig:
        """Make a configuration from keyword settings; an unknown name is an error, not ignored.

        Raises:
            UsageError: unknown name (``hint`` gives the nearest one) or a value out of range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        for name in settings:
            if name not in known:
                raise errors.UsageError("unknown setting", found=name, hint=_suggest(name, known))
        return cls(**settings)

    @classmethod
    def from_broker_conf(cls, path: str | Path) -> StoreConfig:
        """Read a broker's ``broker.conf`` (Java properties, RocketMQ's own key names).

        Keys that belong to the broker around the store (name server, ports, replication, thread pools) are known
        and passed over; a key that is neither is refused.

        Raises:
            StoreIOError: the file could not be read.
            UsageError: an unknown key or a value that cannot be meant.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise errors.from_os_error(error, "read configuration", path) from error
        except ValueError as error:  # a NUL in the path, or what is no text in the file
            raise errors.UsageError(
                "no configuration to be read", found=str(error), hint="give a broker.conf"
            ) from None
        fields = {_camel(field.name): field for field in dataclasses.fields(cls)}
        settings: dict[str, Any] = {"expire_automatically": True}
        for key, value in parse_properties(text).items():
            if key in fields:
                settings[fields[key].name] = _convert(str(fields[key].type), value, key)
            elif key not in BROKER_ONLY_KEYS:
                raise errors.UsageError("unknown setting", path=path, found=key, hint=_suggest(key, set(fields)))
        return cls(**settings)


BROKER_ONLY_KEYS = frozenset(
    """
    accessMessageInMemoryMaxRatio aclEnable autoCreateSubscriptionGroup bitMapLengthConsumeQueueExt
    brokerClusterName brokerId brokerIP2 brokerPermission brokerRole brokerTopicEnable checkCRCOnRecover
    clusterTopicEnable
    debugLockEnable defaultQueryMaxNum
    deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
    diskFallRecorded duplicationEnable
    enableDLegerCommitLog enablePropertyFilter enableScheduleAsyncDeliver
    enableScheduleMessageStats
    fetchNamesrvAddrByAddressServer filterSupportRetry
    flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages
    flushConsumerOffsetInterval flushDelayOffsetInterval haHousekeepingInterval
    haListenPort haMasterAddress haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize
    longPollingEnable maxLmqConsumeQueueNum maxTransferBytesOnMessageInDisk
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory messageIndexSafe namesrvAddr
    offsetCheckInSlave osPageCacheBusyTimeOutMills pullMessageThreadPoolNums putMsgIndexHightWater
    queryMessageThreadPoolNums redeleteHangedFileInterval registerNameServerPeriod
    rejectTransactionMessage rocketmqHome sendMessageThreadPoolNums shortPollingTimeMills slaveReadEnable
    slaveTimeout storeCheckpoint storePathAbortFile storePathConsumeQueue storePathIndex
    storePathRootDir timerWheelEnable traceTopicEnable
    transferMsgByHeap
    useReentrantLockWhenPutMessage
    """.split()  # noqa: SIM905
)
"""Keys of a ``broker.conf`` that concern the broker, replication or services outside this store."""


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties text: ``#`` and ``!`` comments, ``=`` or ``:`` between name and value."""
    pairs = {}
    for line in re.sub(r"\\\r?\n[ \t]*", "", text).splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            name, _, value = re.sub(r"^([^=:\s]+)\s*[=:\s]\s*", "\\1\0", line, count=1).partition("\0")
            pairs[name] = value.strip()
    return pairs


def _camel(name: str) -> str:
    if name == "broker_ip1":
        return "brokerIP1"
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def given_config(config: object) -> StoreConfig:
    """The configuration that was given, RocketMQ's own where None was; UsageError for what is none."""
    if config is None:
        return StoreConfig()
    if not isinstance(config, StoreConfig):
        raise errors.UsageError(
            "not a configuration", expected="StoreConfig", found=type(config).__name__,
            hint="StoreConfig(name=value), or StoreConfig.from_mapping for RocketMQ's names",
        )  # fmt: skip
    return config


def _convert(kind: str, value: str, key: str) -> Any:
    if kind.startswith("int"):
        try:
            return int(value)
        except ValueError:
            raise _bad_value(key, "a whole number", value) from None
    if kind.startswith("bool"):
        if value.lower() not in ("true", "false"):
            raise _bad_value(key, "true or false", value)
        return value.lower() == "true"
    return value


def _bad_value(name: str, expected: str, found: object) -> errors.UsageError:
    return errors.UsageError(f"setting {name} has a value that cannot be meant", expected=expected, found=repr(found))


def _suggest(name: str, known: set[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else "see docs/operations.md for the settings"
