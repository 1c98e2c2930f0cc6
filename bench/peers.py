"""The real RocketMQ store as a peer of the benchmarks: the same work by the same names, with a stock broker's files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interop import jvm, real_store
from mqstore.bench.stores import Peer

BROKER_SIZES = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
"""A stock broker's files, as ours are by default."""

ABOUT = (
    "RocketMQ is the store of its broker with a stock broker's settings, in a virtual machine of its own with\n"
    f"{' '.join(real_store.BENCH_OPTIONS)} and else as it comes, warmed up with as many puts again."
)


def find_peers(versions: str, scratch: Path) -> dict[str, Peer]:
    """A peer for each of the releases named with commas; one that cannot be had is told on standard error."""
    peers = {}
    for version in filter(None, versions.split(",")):
        try:
            peers[f"RocketMQ {version}"] = _peer(real_store.prepare(version, scratch))
        except jvm.Unavailable as error:
            print(f"no RocketMQ {version} beside: {error}", file=sys.stderr)
    return peers


def _peer(store: real_store.RealStore) -> Peer:
    def measure(work: str, directory: Path, count: int, given: Mapping[str, Any]) -> dict[str, Any]:
        options = dict(given)
        mode = str(options.pop("mode", "ASYNC_FLUSH"))
        sizes = BROKER_SIZES | {"mappedFileSizeCommitLog": options.pop("file_bytes", 1 << 30)}
        options |= {"count": count, "warm": options.get("warm", count if mode == "ASYNC_FLUSH" else count // 4)}
        try:
            figures = store.bench(
                directory, "put" if work == "put_batch" else work, options, flushDiskType=mode, **sizes
            )
        except RuntimeError as error:
            return {"failed": str(error).splitlines()[-1]}
        if figures.pop("failed"):
            return {"failed": f"messages failed in RocketMQ {store.version}"}
        if work == "open_store":
            figures |= {"seconds": figures["openSeconds"], "per_second": count / figures["openSeconds"]}
        return figures

    return measure
