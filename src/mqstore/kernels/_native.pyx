# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=False
"""The kernels, compiled. What each function does is told in :class:`mqstore.kernels.api.Kernels`.

They work on raw memory: ``native/common.pxi`` has the one place where buffers are opened and ranges checked, and
``native/record.pxi`` the judgement that every size and length of a record passes before it is followed. Kafka's batches
have theirs in ``native/kafka_batch.pxi`` and ``native/kafka_record.pxi``.
"""

include "native/common.pxi"
include "native/text.pxi"
include "native/record.pxi"
include "native/scan.pxi"
include "native/dispatch.pxi"
include "native/index.pxi"
include "native/put.pxi"
include "native/put_rows.pxi"
include "native/message.pxi"
include "native/tail.pxi"
include "native/get.pxi"
include "native/lookup.pxi"
include "native/arrow.pxi"
include "native/arrow_hosts.pxi"
include "native/kafka_batch.pxi"
include "native/kafka_record.pxi"
include "native/kafka_headers.pxi"
include "native/kafka_encode.pxi"
# Written by the build: see sources.py.
include "native/built_from.pxi"

NAME = "native"

mq_crc_init()
