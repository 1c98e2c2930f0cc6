"""What Spark needs of this Python: whether it is there, and the error where it is not."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from mqstore.errors import MqstoreError, hint_extra


class SparkUnavailableError(MqstoreError):
    """Spark cannot be started here: pyspark or Java is missing, or the Java process did not come up."""


def require_pyspark() -> None:
    """Raise SparkUnavailableError where pyspark is not installed."""
    if find_spec("pyspark") is None:
        too_old = sys.version_info < (3, 11)
        raise SparkUnavailableError(
            "pyspark is not installed",
            hint="Spark 4.3 needs Python 3.11 or newer" if too_old else hint_extra("spark", "pyspark"),
        )


def require_connect() -> None:
    """Raise SparkUnavailableError where what Spark Connect needs beside pyspark is not installed."""
    missing = [name for name in ("grpc", "grpc_status", "google.rpc") if not _is_installed(name)]
    if missing:
        raise SparkUnavailableError(
            "what Spark Connect needs is not installed",
            found=f"no {', '.join(missing)}",
            hint=hint_extra("connect", ", ".join(missing)),
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # no parent of that name
        return False
