"""The ``messages`` view: every record of the commit log as a row, with no look at queues or index."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from mqstore.errors import CorruptFileError
from mqstore.spark.columns import SCHEMA, message_batches
from mqstore.spark.options import ReadOptions
from mqstore.spark.selection import Selection
from mqstore.spark.splits import Split, SplitPolicy, open_log, plan_splits, read_split, split_bytes_for
from mqstore.spark.stores import StoreRef
from mqstore.spark.tables import TableView
from mqstore.store.log_reader import Chunk
from mqstore.store.view import StoreView


class MessagesView(TableView):
    """See the module."""

    schema = SCHEMA

    def plan(self) -> list[list[Split]]:
        """The splits that together are the table, in log order, one a part unless ``maxPartitions`` asks for fewer.

        Raises:
            CorruptFileError: log files overlap; or, under ``failOnDataLoss``, one is missing or an offset asked for is
                no longer there.
        """
        splits = []
        for store in self.stores:
            if self.options.fail_on_data_loss:
                check_starting_offsets(store, self.options)
            splits += plan_store(store, self.options, len(self.stores))
        return grouped(splits, self.options.max_partitions)

    def read(self, part: list[Split]) -> Iterator[Any]:
        """The rows of one part as Arrow record batches."""
        for store, splits in itertools.groupby(part, lambda split: split.store):
            selection = self.selection(store)
            log = open_log(store)
            try:
                for split in splits:
                    for chunk in read_split(log, split, SplitPolicy.of(self.options)):
                        yield from select_batches(chunk, self.columns, selection, store.broker_name)
            finally:
                log.close()


def grouped(splits: Sequence[Split], max_groups: int | None) -> list[list[Split]]:
    """Neighbouring splits together, so that there are at most ``max_groups`` groups of about equal number."""
    size = 1 if max_groups is None else max(1, -(-len(splits) // max_groups))
    return [list(splits[first : first + size]) for first in range(0, len(splits), size)]


def plan_store(store: StoreRef, options: ReadOptions, store_count: int = 1) -> list[Split]:
    """The splits of one store under ``splitBytes`` and ``minPartitions``."""
    log = open_log(store)
    log_bytes = log.inventory.end - log.min_offset
    log.close()
    size = split_bytes_for(log_bytes, options.split_bytes, -(-options.min_partitions // store_count))
    return plan_splits(store, size, options.fail_on_data_loss)


def select_batches(chunk: Chunk, columns: Sequence[str], selection: Selection, broker_name: str) -> Iterator[Any]:
    """The wanted rows of a chunk with the columns asked for; batches without rows are left out."""
    needed = selection.columns
    if not needed:
        yield from message_batches(chunk, columns, broker_name)
        return
    extra = [name for name in needed if name not in columns]
    for batch in message_batches(chunk, [*columns, *extra], broker_name):
        wanted = selection.apply(batch)
        if wanted.num_rows:
            yield wanted.select(list(columns)) if extra else wanted


def check_starting_offsets(store: StoreRef, options: ReadOptions) -> None:
    """Raise CorruptFileError when messages from a starting offset on have expired or were lost."""
    starting = options.starting.of(store.broker_name)
    if not starting:
        return
    with StoreView(store.path) as view:
        begins = {(queue.topic, queue.queue_id): queue.min_offset for queue in view.queues()}
    for (topic, queue_id), offset in sorted(starting.items()):
        begin = begins.get((topic, queue_id), 0)
        if offset < begin:
            raise CorruptFileError(
                f"queue {topic}/{queue_id} begins behind its starting offset: {begin - offset} messages are gone",
                path=store.path,
                expected=f"offset {offset}",
                found=f"offsets from {begin}",
                hint="failOnDataLoss=false reads from what is left; or start at a later offset",
            )
