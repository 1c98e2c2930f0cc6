# What a producer makes for every message: a constructor and fields without a dict or descriptors in between.

cdef object NEW = object()


cdef class MessageFields:
    """What :class:`mqstore.Message` holds; its attributes are described there."""

    cdef public object topic
    cdef public object body
    cdef public object tags
    cdef public object keys
    cdef public object properties
    cdef public object queue_id
    cdef public object delay_level
    cdef public object flag
    cdef public object sys_flag
    cdef public object born_timestamp_ms
    cdef public object born_host
    cdef public object reconsume_times
    cdef public object prepared_transaction_offset
    cdef public object wait_store_msg_ok

    def __init__(
        self, topic, body, tags=None, keys=(), properties=NEW, queue_id=None, delay_level=0, flag=0, sys_flag=0,
        born_timestamp_ms=None, born_host=None, reconsume_times=0, prepared_transaction_offset=0,
        wait_store_msg_ok=True,
    ):
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys = keys
        self.properties = {} if properties is NEW else properties
        self.queue_id = queue_id
        self.delay_level = delay_level
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp_ms = born_timestamp_ms
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.wait_store_msg_ok = wait_store_msg_ok
