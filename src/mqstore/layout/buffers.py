"""The kinds of buffer that decoders read from."""

from __future__ import annotations

import mmap
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
"""Anything that is indexed by byte and sliced: bytes, a mapped file, or a memoryview of format ``B``."""
