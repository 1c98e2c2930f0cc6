"""``mqstore kafka dump-log``: Kafka's own dump tool, by its options and with its lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from mqstore import errors, kernels
from mqstore.cli.check import finding_lines
from mqstore.cli.kafka.kafka_lines import Decoder, batch_line, record_line, snapshot_line
from mqstore.cli.output import TextOutput, printable, to_json
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of, read_whole
from mqstore.findings import Severity
from mqstore.kafka.check import check
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.records import records_of
from mqstore.kafka.segment import Segment
from mqstore.layout.kafka import internal_topics, names
from mqstore.layout.kafka.batch import check_batch
from mqstore.layout.kafka.names import FileKind, FileStage, SegmentFile
from mqstore.layout.kafka.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from mqstore.layout.kafka.offset_index import OffsetIndex
from mqstore.layout.kafka.producer_snapshot import decode_producer_snapshot
from mqstore.layout.kafka.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from mqstore.layout.kafka.time_index import TimeIndex
from mqstore.layout.kafka.txn_index import decode_txn_index

_ENTRY_SIZES = {FileKind.OFFSET_INDEX: OFFSET_ENTRY_SIZE, FileKind.TIME_INDEX: TIME_ENTRY_SIZE}
_DECODERS: dict[str, Decoder] = {
    "StringDecoder": lambda data: data.decode("utf-8", "backslashreplace"),
    "DefaultDecoder": lambda data: data.decode("utf-8", "backslashreplace"),
    "IntegerDecoder": lambda data: str(int.from_bytes(data, "big", signed=True)),
    "LongDecoder": lambda data: str(int.from_bytes(data, "big", signed=True)),
}
_NOT_DECODED = "records of this topic are not decoded here; without the option their bytes are shown"


def run(
    files: Annotated[str, typer.Option("--files", metavar="PATHS", help="The files, with commas between them.")],
    deep_iteration: Annotated[bool, typer.Option("--deep-iteration", help="The records of each batch, too.")] = False,
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Their keys and values as well; implies --deep-iteration.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Of records keys and values only.")
    ] = False,
    index_sanity_check: Annotated[
        bool, typer.Option("--index-sanity-check", help="Of indexes only whether their size and last entry can be.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Of indexes only what does not agree with the log.")
    ] = False,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=1, help="How much of each .log to read; whole batches.")
    ] = None,
    max_message_size: Annotated[
        int | None, typer.Option("--max-message-size", help="Accepted: messages of any size are read.")
    ] = None,
    key_decoder_class: Annotated[
        str, typer.Option("--key-decoder-class", help="String, Default, Integer or LongDecoder, in any package.")
    ] = "StringDecoder",
    value_decoder_class: Annotated[
        str, typer.Option("--value-decoder-class", help="As --key-decoder-class.")
    ] = "StringDecoder",
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Records are those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Records are those of __transaction_state.")
    ] = False,
    cluster_metadata_decoder: Annotated[bool, typer.Option("--cluster-metadata-decoder", hidden=True)] = False,
    remote_log_metadata_decoder: Annotated[bool, typer.Option("--remote-log-metadata-decoder", hidden=True)] = False,
    share_group_state_decoder: Annotated[bool, typer.Option("--share-group-state-decoder", hidden=True)] = False,
) -> int:
    """Print files of a partition as kafka-dump-log.sh does: .log, .index, .timeindex, .txnindex, .snapshot.

    Options and lines are that tool's, so that scripts go on working; of records in message sets of the old formats the
    checksum is not shown. Damage, files that are missing or cannot be decoded, and indexes that would mislead a broker,
    are told on standard error, with exit code 1; the others are printed. Other names of the command: kafka-dump-log,
    kafka-dump-log.sh, DumpLogSegments. For JSON there is kafka dump.
    """
    if cluster_metadata_decoder or remote_log_metadata_decoder or share_group_state_decoder:
        raise errors.UsageError(_NOT_DECODED, hint="--offsets-decoder and --transaction-log-decoder are understood")
    if offsets_decoder and transaction_log_decoder:
        raise errors.UsageError("records are of one topic", hint="--offsets-decoder or --transaction-log-decoder")
    topic = internal_topics.OFFSETS_TOPIC if offsets_decoder else None
    topic = internal_topics.TRANSACTIONS_TOPIC if transaction_log_decoder else topic
    dump = _LogDump(
        deep_iteration or print_data_log or topic is not None,
        _contents(topic, _decoder(key_decoder_class), _decoder(value_decoder_class))
        if print_data_log or topic is not None
        else None,
        skip_record_metadata,
        max_bytes,
    )
    problems = _dump_files(files, dump, index_sanity_check, verify_index_only)
    return 1 if problems + dump.problems else 0


def _dump_files(files: str, dump: _LogDump, index_sanity_check: bool, verify_index_only: bool) -> int:
    """Print all; how many problems were told, but for those that ``dump`` counts."""
    output = TextOutput()  # makes ready for text that this terminal cannot show
    problems = 0
    for text in files.split(","):
        path = Path(text.strip())
        try:
            problems += _dump_file(path, dump, index_sanity_check, verify_index_only)
        except errors.MqstoreError as error:
            error.path = error.path or str(path)
            sys.stdout.flush()
            output.error(error)
            problems += 1
    return problems


def _dump_file(path: Path, dump: _LogDump, index_sanity_check: bool, verify_index_only: bool) -> int:
    """Print one file; how many problems were told, of indexes."""
    file = _known_file(path)
    _print(f"Dumping {path}")
    is_index = file.kind in _ENTRY_SIZES
    if is_index and index_sanity_check:
        return _sanity(path, file)
    if file.kind is FileKind.LOG:
        for line in dump.lines(path, file):
            _print(line)
    elif not (is_index and verify_index_only):
        lines = list(_entries(path, file))
        for line in lines or ([f"{path} is empty."] if file.kind is FileKind.OFFSET_INDEX else []):
            _print(line)
    return _disagreements(path) if is_index else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{printable(line)}\n")


def _decoder(name: str) -> Decoder:
    found = _DECODERS.get(name.rpartition(".")[2])
    if found is None:
        raise errors.UsageError("no such decoder here", expected=", ".join(_DECODERS), found=name)
    return found


def _known_file(path: Path) -> SegmentFile:
    found = names.parse_segment_file(path.name)
    if not mode_of(path) or found is None or found.stage is not FileStage.LIVE:
        what = "no such file" if not mode_of(path) else "not a file of a Kafka segment"
        raise errors.NotAStoreError(what, path=path, expected="20 digits and .log, .index and so on")
    return found


def _entries(path: Path, file: SegmentFile) -> Iterator[str]:
    data = read_whole(path, path.name) or b""
    if file.kind is FileKind.OFFSET_INDEX:
        yield from (f"offset: {one.offset} position: {one.position}" for one in OffsetIndex.decode(data, file.offset))
    elif file.kind is FileKind.TIME_INDEX:
        for entry in TimeIndex.decode(data, file.offset):
            yield f"timestamp: {entry.timestamp_ms} offset: {entry.offset}"
    elif file.kind is FileKind.TXN_INDEX:
        for one in decode_txn_index(data):
            yield (
                f"version: 0 producerId: {one.producer_id} firstOffset: {one.first_offset} "
                f"lastOffset: {one.last_offset} lastStableOffset: {one.last_stable_offset}"
            )
    else:
        yield from map(snapshot_line, decode_producer_snapshot(data))


def _sanity(path: Path, file: SegmentFile) -> int:
    """What a broker asks of an index before it uses it."""
    data = read_whole(path, path.name) or b""
    if len(data) % _ENTRY_SIZES[file.kind]:
        sys.stderr.write(f"{path}: {len(data)} bytes are no whole number of entries\n")
        return 1
    if data and file.kind is FileKind.OFFSET_INDEX and not OffsetIndex.decode(data, file.offset):
        sys.stderr.write(f"{path}: {len(data)} bytes without an entry\n")
        return 1
    _print(f"{path} passed sanity check.")
    return 0


def _disagreements(path: Path) -> int:
    """Tell what of an index does not agree with the log beside it."""
    if not mode_of(path.with_suffix(FileKind.LOG.value)):
        sys.stderr.write(f"{path}: there is no .log beside it to compare with\n")
        return 1
    own = path.absolute()
    found = [one for one in check(path) if Path(one.path).absolute() == own and one.severity is not Severity.NOTE]
    for finding in found:
        sys.stderr.write("".join(f"{line}\n" for line in finding_lines(finding)))
    return len(found)


Contents = Callable[[bytes | None, bytes | None], tuple[str | None, str | None]]


def _contents(topic: str | None, key_decoder: Decoder, value_decoder: Decoder) -> Contents:
    """How keys and values are shown; a part that is None is left out."""

    def plain(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
        return None if key is None else key_decoder(key), None if value is None else value_decoder(value)

    def internal(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
        assert topic is not None
        try:
            found = internal_topics.decode_internal(topic, key, value)
        except errors.UsageError:
            return plain(key, value)
        return _json({"type": found.kind, "data": found.key}), _json(found.value)

    return plain if topic is None else internal


def _json(value: dict[str, Any] | None) -> str:
    return json.dumps(to_json(value), ensure_ascii=False)


class _LogDump:
    """Prints ``.log`` files; ``problems`` counts the damages told."""

    def __init__(self, deep: bool, contents: Contents | None, skip_metadata: bool, max_bytes: int | None) -> None:
        self._deep = deep
        self._contents = contents
        self._skip_metadata = skip_metadata
        self._max_bytes = max_bytes
        self.problems = 0

    def lines(self, path: Path, file: SegmentFile) -> Iterator[str]:
        """The batches of a file, and their records where they are wanted."""
        yield f"Log starting offset: {file.offset}"
        pool = FilePool()
        try:
            segment = Segment(path.parent, file.offset, pool, limit_bytes=self._max_bytes)
            for position, header, buffer in segment.headers(on_damage=self._tell):
                try:
                    check_batch(buffer, header, kernels.crc32c)
                    is_valid = True
                except errors.CorruptBatchError as error:
                    is_valid = False
                    self._tell(BatchDamage(path, position, str(error.found), header.size))
                yield batch_line(header, position, is_valid)
                if self._deep and is_valid:
                    try:
                        records = records_of(segment, position, header, buffer)
                    except errors.CorruptBatchError as error:
                        self._tell(BatchDamage(path, position, str(error.found or error.message), header.size))
                        continue
                    for record in records:
                        shown = None if self._contents is None else self._contents(record.key, record.value)
                        yield record_line(header, record, shown, self._skip_metadata)
        finally:
            pool.close()

    def _tell(self, damage: BatchDamage) -> bool:
        if self._max_bytes is not None and damage.reason == "CUT_OFF":
            return False  # by what was asked for
        self.problems += 1
        sys.stderr.write(f"damage in {damage.path} @ {damage.position}: {damage.reason}\n")
        return True
