"""Give every decoder bytes that nobody wrote: coverage-guided with atheris, or by chance where that is not installed.

    python scripts/fuzz.py [--seconds 3600] [--only NAME] [--seed 1] [--by-chance] [--findings DIR]

Inputs grow from the files in ``tests/golden``. A decoder may answer or refuse with an error of the package, within
memory and time; anything else is a finding: it is written to ``--findings`` and ends the run. The compiled kernels must
say what the plain ones say; to see them read outside of their buffers, build with ``MQSTORE_SANITIZE=1`` and run
``--by-chance`` with ``PYTHONMALLOC=malloc`` and the sanitizer's library loaded first.
"""

from __future__ import annotations

import argparse
import collections
import functools
import hashlib
import importlib
import importlib.util
import io
import random
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

Counts = collections.Counter[str]
Targets = list[tuple[str, Callable[[bytes], object]]]

SEED_BYTES = 6000
"""Of each golden file so much is a seed; more only makes runs slow."""


def golden_seeds() -> Iterator[bytes]:
    """The beginnings of all files of the golden stores, and texts for the parsers."""
    for archive in sorted((ROOT / "tests" / "golden").rglob("*.tar.xz")):
        with tarfile.open(archive) as files:
            for member in files:
                if member.isfile() and not member.name.endswith((".jsonl", ".md")):
                    stored = files.extractfile(member) or io.BytesIO()
                    yield stored.read(SEED_BYTES)
    yield from (
        b"a IS NOT NULL AND (b > 10 OR c BETWEEN 1 AND 2.5) AND d IN ('x', 'y')", b"a || b || c", b"1s 5s 10s 1m 2h",
        b"TAGS\x01a\x02KEYS\x01k1 k2\x02", b'{"dataVersion":{"counter":1},"offsetTable":{"t@g":{0:1,1:2}}}',
        b"7F0000010000276B0000000000000400", b"topic-3", b"00000000000000000000.log",
    )  # fmt: skip


def one_input(targets: Targets, refusal: type[Exception], counts: Counts, data: bytes) -> None:
    """The first byte says which decoder gets the rest."""
    if not data:
        return
    name, target = targets[data[0] % len(targets)]
    counts[name] += 1
    try:
        target(data[1:])
    except refusal:
        return  # refused, as it may be


def damaged(chance: random.Random, seeds: list[bytes]) -> bytes:
    """A seed with a few bytes changed, cut out, doubled, or joined to another seed."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice([0, 1, 1, 2, 4, 16])):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            number = chance.choice([0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000])
            data[at : at + 4] = number.to_bytes(4, chance.choice(["big", "little"]))  # type: ignore[arg-type]
        elif kind == 2:
            del data[at : at + chance.choice([1, 4, 100])]
        elif kind == 3:
            data[at:at] = data[: chance.choice([1, 20, 100])]
        else:
            other = chance.choice(seeds)
            data[at:] = other[chance.randrange(len(other) + 1) :]
    return bytes(data)


def by_chance(run: Callable[[bytes], None], seeds: list[bytes], seconds: float, seed: int, findings: Path) -> int:
    """Run until the time is over; how many inputs that were. Raises what a decoder raised."""
    chance = random.Random(seed)
    ends = time.monotonic() + seconds
    done = 0
    while time.monotonic() < ends:
        data = bytes([chance.randrange(256)]) + damaged(chance, seeds)
        try:
            run(data)
        except BaseException:
            findings.mkdir(parents=True, exist_ok=True)
            place = findings / hashlib.sha256(data).hexdigest()[:16]
            place.write_bytes(data)
            print(f"input number {done}: {place}", file=sys.stderr)
            raise
        done += 1
    return done


def guided(run: Callable[[bytes], None], seeds: Iterable[bytes], arguments: argparse.Namespace) -> None:
    """Run atheris; it ends the process itself."""
    atheris = importlib.import_module("atheris")
    arguments.findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mqstore-fuzz-") as corpus:
        for number, seed in enumerate(seeds):
            for target in range(16):
                (Path(corpus) / f"{number}-{target}").write_bytes(bytes([target]) + seed)
        options = [
            f"-max_total_time={int(arguments.seconds)}", f"-seed={arguments.seed}", f"-max_len={SEED_BYTES}",
            "-timeout=60", "-rss_limit_mb=4096", f"-artifact_prefix={arguments.findings}/", "-print_final_stats=1",
        ]  # fmt: skip
        atheris.Setup([sys.argv[0], *options, corpus], run)
        atheris.Fuzz()


def main(words: list[str] | None = None) -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--only", help="one decoder by name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--by-chance", action="store_true", help="without atheris")
    parser.add_argument("--findings", type=Path, default=ROOT / "build" / "fuzz-findings")
    arguments = parser.parse_args(words)
    by_hand = arguments.by_chance or importlib.util.find_spec("atheris") is None
    if by_hand:
        known = importlib.import_module("fuzz_targets")
    else:
        # Only what is imported in here is traced; so nothing of the package may be imported before.
        with importlib.import_module("atheris").instrument_imports(include=["mqstore"]):
            known = importlib.import_module("fuzz_targets")
    chosen = [(name, work) for name, work in known.TARGETS.items() if arguments.only in (None, name)]
    if not chosen:
        parser.error(f"no decoder {arguments.only}: {', '.join(known.TARGETS)}")
    counts: Counts = collections.Counter()
    seeds = list(golden_seeds())
    run = functools.partial(one_input, chosen, known.MqstoreError, counts)
    if not by_hand:
        guided(run, seeds, arguments)
        return
    done = by_chance(run, seeds, arguments.seconds, arguments.seed, arguments.findings)
    print(f"{done} inputs without a finding: {', '.join(f'{name} {count}' for name, count in sorted(counts.items()))}")


if __name__ == "__main__":
    main()
