"""A session on a server of Spark Connect, which knows the formats."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mqstore.spark.installed import SparkUnavailableError, require_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KNOCK_TIMEOUT_S: Final = 30


def remote_session(url: str, app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """See :func:`mqstore.spark.session`."""
    require_connect()

    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    import mqstore.spark

    builder = SparkSession.Builder().remote(url).appName(app_name)
    for name, value in {"spark.sql.session.timeZone": "UTC", **settings}.items():
        builder = builder.config(name, value)
    try:
        _knock(url)
        session = builder.getOrCreate()
        mqstore.spark.register(session)
    except (PySparkException, OSError) as error:
        raise SparkUnavailableError(
            f"no session of Spark Connect at {url}: {error}",
            hint="is a server there, with Spark 4.3? A process that has a Spark session of another kind must stop it "
            "first",
        ) from error
    return session


def _knock(url: str) -> None:
    """See that somebody listens: pyspark itself would try for ten minutes."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    address = urlsplit("//" + DefaultChannelBuilder(url).endpoint)
    socket.create_connection((address.hostname or "", address.port or 0), _KNOCK_TIMEOUT_S).close()
