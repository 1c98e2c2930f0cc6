"""``mqstore kafka convert``: data from one layout into the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mqstore import errors
from mqstore.cli.kafka.filters import parse_codec
from mqstore.cli.kafka.options import SkipDamageOption
from mqstore.cli.options import FormatOption, parse_path
from mqstore.cli.output import Format, make_output
from mqstore.cli.spark_session import spark_session
from mqstore.files.durable import check_can_create
from mqstore.files.stage import Stage
from mqstore.kafka.view import KafkaView
from mqstore.store.paths import StorePaths
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from mqstore.convert import ConversionReport


def run(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A Kafka data directory, or a RocketMQ store.", parser=parse_path),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Directory of the other kind; new or empty.", parser=parse_path
        ),
    ],
    topics: Annotated[str | None, typer.Option(help="Only topics that this regular expression matches.")] = None,
    topic_name: Annotated[
        list[str] | None, typer.Option("--topic-name", help="Another name for a topic: OLD=NEW; may be repeated.")
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--aborted-as-rollback", help="Keep aborted records as rolled back messages.")
    ] = False,
    codec: Annotated[
        str | None, typer.Option(help="Codec of the batches written: none, gzip, snappy, lz4, zstd; none without.")
    ] = None,
    offsets_topic_partitions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Partitions of __consumer_offsets there, by which groups have their places in it; 50 without."
        ),
    ] = None,
    skip_damage: SkipDamageOption = False,
    master: Annotated[
        str | None, typer.Option(help="Convert on Spark: local[N], or the URL of a cluster's master.")
    ] = None,
    format: FormatOption = Format.text,
) -> int:
    """Convert a Kafka data directory into a RocketMQ store, or a store into a Kafka data directory.

    Which way is told by what SOURCE is. Whatever is not carried over is counted in the report. An option that is of the
    other way is refused.
    """
    from mqstore import convert

    to_kafka = StorePaths(source).looks_like_store()
    if to_kafka:
        _refuse(rollback, "--aborted-as-rollback", "a Kafka log becomes a store")
    else:
        _refuse(codec is not None, "--codec", "a store becomes a Kafka log")
        _refuse(offsets_topic_partitions is not None, "--offsets-topic-partitions", "a store becomes a Kafka log")
    options = convert.ConvertOptions(
        topics=topics,
        names=_names(topic_name or []),
        aborted=convert.Aborted.ROLLBACK if rollback else convert.Aborted.OMIT,
        skip_damage=skip_damage,
        offsets_topic_partitions=50 if offsets_topic_partitions is None else offsets_topic_partitions,
        kafka_settings={"compression_type": parse_codec("none" if codec is None else codec).name.lower()},
    )
    if master is not None:
        from mqstore.spark import jobs

        (StoreView if to_kafka else KafkaView)(source).close()
        Stage(output.absolute(), source.absolute())  # an output in use is told before Spark is started
        check_can_create(output.absolute())
        with spark_session("convert", master) as session:
            report = jobs.convert(session, source.absolute(), output.absolute(), options=options)
    else:
        report = (convert.to_kafka if to_kafka else convert.to_rocketmq)(source, output, options)
    make_output(format).document(report.as_dict(), _lines(report))
    return 0


def _lines(report: ConversionReport) -> Iterator[str]:
    yield from (f"{old} is now {new}" for old, new in report.topics.items() if old != new)
    yield from (f"{count} {loss.value}" for loss, count in report.total_losses().items())
    if report.group_offsets:
        yield f"{report.group_offsets} committed offsets of groups"
    where = f"{len(report.partitions)} partitions, in {report.seconds:.1f} s: {report.output}"
    yield f"{report.records} records in {where}"


def _refuse(given: bool, option: str, way: str) -> None:
    if given:
        raise errors.UsageError(f"{option} is only for where {way}", hint="leave it out")


def _names(pairs: list[str]) -> dict[str, str]:
    names = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not equals or not old or not new:
            raise errors.UsageError("no pair of names", expected="OLD=NEW", found=pair)
        names[old] = new
    return names
