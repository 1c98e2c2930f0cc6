"""The ``messages`` view: every record of the commit log as a row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mqstore.errors import CorruptFileError
from mqstore.spark import pushed
from mqstore.spark.options import ReadOptions
from mqstore.spark.pieces import Piece, grouped, read_piece
from mqstore.spark.planning import plan_store
from mqstore.spark.selection import Selection
from mqstore.spark.splits import SplitPolicy, open_log
from mqstore.spark.stores import StoreRef
from mqstore.spark.table_view import TableView
from mqstore.store.columns import KEEPING_SCHEMA, SCHEMA, message_batches
from mqstore.store.log_reader import Chunk
from mqstore.store.view import StoreView


class MessagesView(TableView):
    """See the module."""

    schema = SCHEMA
    pushable = pushed.COLUMNS

    @classmethod
    def schema_for(cls, options: ReadOptions) -> Any:
        """One column more where damaged records are kept."""
        return KEEPING_SCHEMA if options.keeps_corrupt else SCHEMA

    bytes_read = 0
    """Bytes of the records that this process has gone through."""

    def plan(self) -> list[list[Piece]]:
        """The pieces that together are the table, one a part unless ``maxPartitions`` asks for fewer.

        Raises:
            CorruptFileError: log files overlap; or, under ``failOnDataLoss``, one is missing or an offset asked for is
                no longer there.
        """
        pieces: list[Piece] = []
        for store in self.stores:
            if self.options.fail_on_data_loss:
                check_starting_offsets(store, self.options)
            pieces += plan_store(store, self.options, self.selection(store), len(self.stores))
        return grouped(pieces, self.options.max_partitions)

    def read(self, part: list[Piece]) -> Iterator[Any]:
        """The rows of one part as Arrow record batches."""
        policy = SplitPolicy.of(self.options)
        for store, pieces in itertools.groupby(part, lambda piece: piece.store):
            selection = self.selection(store)
            log = open_log(store)
            try:
                for piece in pieces:
                    for chunk in read_piece(log, piece, policy):
                        self.bytes_read += int(np.frombuffer(chunk.columns.size, np.int32).sum())
                        yield from select_batches(chunk, self.columns, selection, store.broker_name)
            finally:
                log.close()


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
    """Raise CorruptFileError when messages of a wanted queue from a starting offset on have expired or were lost."""
    wants = Selection.of(options, store.broker_name).wants_queue
    starting = {key: offset for key, offset in options.starting.of(store.broker_name).items() if wants(*key)}
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
