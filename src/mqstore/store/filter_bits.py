"""Which SQL92 subscriptions a message passes, noted beside its queue unit when it is dispatched.

A consumer group that subscribes with a condition is registered in ``consumerFilter.json`` (docs/format/config-json.md).
Each message of its topic that is dispatched from then on gets a bitmap, in which every group whose condition it fulfils
sets its bits. When that group reads, messages without its bits need not be looked at.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping

from mqstore.errors import UsageError
from mqstore.kernels.api import QueueRun
from mqstore.layout.bloom import BloomFilter
from mqstore.layout.config_beans import BloomFilterData, ConsumerFilterData
from mqstore.layout.queue_ext import ExtUnit
from mqstore.layout.queue_unit import iter_units
from mqstore.layout.record import Record, decode_record
from mqstore.layout.sql92 import SqlExpression
from mqstore.store.config import StoreConfig
from mqstore.store.log_reader import Chunk
from mqstore.store.settings import Settings

SQL92 = "SQL92"
_NOT_YET_MS = 1 << 62
Prefilter = Callable[[ExtUnit | None], bool]
"""False for the ext unit of a message that cannot pass; None is a message without one, of which nothing is known."""


class FilterBits:
    """The registered conditions of one store, and the bits they set."""

    def __init__(self, settings: Settings, config: StoreConfig, last_timestamp_ms: Callable[[], int]) -> None:
        """``last_timestamp_ms`` gives the store time of the newest record."""
        self._last_timestamp_ms = last_timestamp_ms
        self._settings = settings
        self._calculates = config.enable_calc_filter_bit_map
        self._clean_ms = config.filter_data_clean_time_span
        self._bloom = BloomFilter.sized(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        self._guard = threading.Lock()
        self._compiled: dict[str, SqlExpression | None] = {}

    def ext_units(self, chunk: Chunk, run: QueueRun) -> list[ExtUnit]:
        """The ext unit of each message of ``run``, whose records are in ``chunk``."""
        filters = self._filters_of(run.topic.decode("utf-8", "replace")) if self._calculates else []
        made = []
        for unit in iter_units(run.units):
            at = unit.physical_offset - chunk.physical_offset
            record = decode_record(chunk.buffer, at, physical_offset=unit.physical_offset, check_crc=False)
            assert isinstance(record, Record)  # dispatch was given records only
            made.append(ExtUnit(unit.tags_code, record.store_timestamp_ms, self._bitmap(record, filters)))
        return made

    def _bitmap(self, record: Record, filters: list[tuple[SqlExpression, list[int]]]) -> bytes:
        if not filters:
            return b""
        bitmap = bytearray(self._bloom.bit_count // 8)
        for expression, positions in filters:
            if expression.matches(record.properties):
                self._bloom.set_bits(bitmap, positions)
        return bytes(bitmap)

    def _filters_of(self, topic: str) -> list[tuple[SqlExpression, list[int]]]:
        found = []
        for data in self._settings.consumer_filters.get(topic, {}).values():
            expression = self._compile(data.expression or "") if self._is_ours(data) else None
            if expression is not None:
                found.append((expression, self._bloom.positions(data.consumer_group, topic)))
        return found

    def _is_ours(self, data: ConsumerFilterData) -> bool:
        """Whether the bits of ``data`` are those that this filter would give it."""
        bits = data.bloom_filter_data
        return (
            data.expression_type == SQL92
            and bits is not None
            and bits.bit_num == self._bloom.bit_count
            and bits.bit_pos == self._bloom.positions(data.consumer_group, data.topic)
        )

    def _compile(self, text: str) -> SqlExpression | None:
        if text not in self._compiled:
            try:
                self._compiled[text] = SqlExpression.parse(text)
            except UsageError:  # a broker compiles some texts that mean something else than they say
                self._compiled[text] = None
        return self._compiled[text]

    def register(self, group: str, topic: str, expression: SqlExpression) -> None:
        """Note that ``group`` subscribes to ``topic`` with this condition, from now on."""
        now_ms = time.time_ns() // 1_000_000
        with self._guard:
            known = self._settings.consumer_filters.get(topic, {}).get(group)
            if known is not None and known.expression == expression.text and self._is_ours(known):
                if known.dead_time_ms:
                    self._put(dataclasses.replace(known, dead_time_ms=0), now_ms)
                return
            bits = BloomFilterData(bit_num=self._bloom.bit_count, bit_pos=self._bloom.positions(group, topic))
            data = ConsumerFilterData(
                consumer_group=group,
                topic=topic,
                expression=expression.text,
                expression_type=SQL92,
                born_time_ms=_NOT_YET_MS,
                client_version=now_ms,
                bloom_filter_data=bits,
            )
            self._put(data, now_ms)
            # Only now does every message that is stored get its bits; those stored up to this moment may lack them.
            born_ms = max(time.time_ns() // 1_000_000, self._last_timestamp_ms())
            self._put(dataclasses.replace(data, born_time_ms=born_ms), now_ms)

    def unregister(self, group: str, topic: str) -> None:
        """Note that nobody of ``group`` reads ``topic`` any more; its bits are set for some time yet."""
        now_ms = time.time_ns() // 1_000_000
        with self._guard:
            known = self._settings.consumer_filters.get(topic, {}).get(group)
            if known is not None:
                self._put(dataclasses.replace(known, dead_time_ms=max(now_ms, known.born_time_ms)), now_ms)

    def _put(self, data: ConsumerFilterData, now_ms: int) -> None:
        filters: Mapping[str, Mapping[str, ConsumerFilterData]] = self._settings.consumer_filters
        kept = {
            topic: {
                group: one
                for group, one in groups.items()
                if not (one.is_dead and now_ms - one.dead_time_ms > self._clean_ms)
            }
            for topic, groups in filters.items()
        }
        kept.setdefault(data.topic, {})[data.consumer_group] = data
        self._settings.set_consumer_filters({topic: groups for topic, groups in kept.items() if groups})

    def prefilter(self, group: str, topic: str, expression: SqlExpression) -> Prefilter | None:
        """What tells messages that ``group`` cannot want, by their ext units; None when nothing is known."""
        data = self._settings.consumer_filters.get(topic, {}).get(group)
        if data is None or data.expression != expression.text or not self._is_ours(data):
            return None
        positions = self._bloom.positions(group, topic)
        size, born_ms = self._bloom.bit_count // 8, data.born_time_ms

        def may_pass(unit: ExtUnit | None) -> bool:
            if unit is None or len(unit.bitmap) != size or unit.store_timestamp_ms <= born_ms:
                return True
            return self._bloom.may_match(unit.bitmap, positions)

        return may_pass
