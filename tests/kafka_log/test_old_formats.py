"""A read that ends inside a compressed message of an old format gives what lies before the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore import kafka


@pytest.mark.parametrize("name", ["legacyv0", "legacyv1", "mixed", "plain"])
def test_every_end(golden_kafka: Path, name: str) -> None:
    with kafka.inspect(golden_kafka / f"{name}-0") as view:
        partition = view.partition(name)
        offsets = [record.offset for record in partition.records()]
        assert offsets == list(range(len(offsets)))
        for end in range(0, len(offsets) + 1, 1 if name != "plain" else 97):
            first = max(0, end - 30)
            assert [record.offset for record in partition.records(first, end)] == offsets[first:end]
            ends = [place.header.last_offset for place in partition.batches(first, end)]
            assert not ends or ends[-1] >= end - 1
