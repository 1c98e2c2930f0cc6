# The end of a commit log: ordinary messages go from Message to mapped bytes in one call, under the interpreter lock.

from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

import time as clock

cdef extern from *:
    """
    /* Not followed by the collector: its items are missing at first, and never refer back to it later. */
    static inline PyObject *mq_new_tuple(PyObject *type, Py_ssize_t size)
    {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
        if (made != NULL)
            PyObject_GC_UnTrack(made);
        return made;
    }
    static inline const char *mq_utf8(PyObject *text, Py_ssize_t *size)
    {
        return PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, size) : NULL;
    }
    static inline PyObject *mq_hex(const uint8_t *p, Py_ssize_t size)
    {
        static const char digits[] = "0123456789ABCDEF";
        PyObject *text = PyUnicode_New(2 * size, 127);
        if (text != NULL) {
            Py_UCS1 *at = PyUnicode_1BYTE_DATA(text);
            for (Py_ssize_t k = 0; k < size; k++) {
                at[2 * k] = digits[p[k] >> 4];
                at[2 * k + 1] = digits[p[k] & 15];
            }
        }
        return text;
    }
    """
    object mq_new_tuple(object type, Py_ssize_t size)
    const char* mq_utf8(object text, Py_ssize_t* size)
    object mq_hex(const uint8_t* p, Py_ssize_t size)
    void PyErr_Clear()

cdef enum:
    # A broker's map has 16 places until it holds more than 12 names; the order of larger maps is left to the plain path.
    MAX_PAIRS = 12
    MAP_PLACES = 16
    # More than this is left to the plain path too: it would keep other threads waiting for the interpreter.
    MAX_BYTES_AT_ONCE = 1 << 20


cdef struct Ready:
    # A message that passed all checks. Its parts lie in objects that the message holds, its properties in the tail's
    # scratch memory, at an offset because that memory may move while it grows.
    Head head
    Bytes topic
    Bytes body
    int64_t properties_at
    int64_t properties_size
    int64_t size
    # What taking it back needs. Both objects are held elsewhere.
    PyObject* next_offsets
    PyObject* topic_name
    int64_t turn


cdef struct Property:
    PyObject* name
    PyObject* value
    int place


cdef class LogTail:
    """Where a commit log ends, and the mapped window behind that; see mqstore.kernels.store_api.LogTail.

    The interpreter lock is the only lock here. It must not change hands between the first check of a message and the
    last byte of its record, so in between nothing may run Python code or make objects that the garbage collector
    follows (it may run finalizers): results are made before, the clock is read before, and only exact types of the
    language itself are looked into. Everything else is left to the plain path.
    """

    cdef public int64_t end_offset
    cdef public int64_t last_timestamp_ms
    cdef public int64_t last_record_offset
    cdef public bint is_open
    cdef public int64_t max_body
    cdef public object plain_property
    cdef readonly dict queue_counts
    cdef readonly dict next_offsets
    cdef readonly dict turns
    cdef object message_type
    cdef object result_type
    cdef object put_ok
    cdef bytes store_host
    cdef Target window
    cdef int64_t window_start
    cdef int64_t writable_to
    cdef Ready* ready
    cdef int64_t ready_capacity
    cdef int64_t count
    cdef int64_t total
    cdef uint8_t* scratch
    cdef int64_t scratch_capacity
    cdef int64_t scratch_size

    def __cinit__(self, message_type, result_type, put_ok, bytes store_host, int64_t max_body):
        if len(store_host) != HOST_V4_SIZE and len(store_host) != HOST_V6_SIZE:
            raise UsageError("a host field has 8 or 20 bytes", expected="8 or 20", found=len(store_host))
        if not issubclass(message_type, MessageFields):
            raise UsageError("messages of another class", expected="MessageFields", found=message_type.__name__)
        self.message_type, self.result_type, self.put_ok = message_type, result_type, put_ok
        self.store_host, self.max_body = store_host, max_body
        self.queue_counts, self.next_offsets, self.turns = {}, {}, {}
        self.last_record_offset = -1

    def __dealloc__(self):
        free(self.ready)
        free(self.scratch)

    def attach(self, buffer, int64_t start):
        if start < 0:
            raise UsageError("no place in a log", offset=start)
        self.window = Target(buffer)
        self.window_start = self.writable_to = start

    def allow(self, int64_t writable_to):
        if self.window is None or not self.window_start <= writable_to <= self.window_start + self.window.size:
            raise UsageError("outside the window", offset=writable_to, found=self.window_start)
        self.writable_to = writable_to

    def detach(self):
        if self.window is not None:
            self.window.done()
            self.window = None
        self.writable_to = 0

    def put(self, message):
        cdef object result = mq_new_tuple(self.result_type, 8)
        cdef int64_t now = clock.time_ns() // 1_000_000
        cdef int64_t start
        self.begin()
        if not self.stage(message) or not self.fits():
            self.take_back()
            return None
        start = self.end_offset
        self.write(now)
        self.fill(result, 0, start)
        return result

    def put_batch(self, list messages):
        cdef list results = [mq_new_tuple(self.result_type, 8) for _ in messages]
        cdef int64_t now = clock.time_ns() // 1_000_000
        cdef int64_t start
        cdef Py_ssize_t k
        self.begin()
        if PyList_GET_SIZE(messages) != PyList_GET_SIZE(results):
            return None
        for k in range(PyList_GET_SIZE(results)):
            if self.total > MAX_BYTES_AT_ONCE or not self.stage(messages[k]):
                self.take_back()
                return None
        if not self.fits():
            self.take_back()
            return None
        start = self.end_offset
        self.write(now)
        for k in range(self.count):
            self.fill(results[k], k, start)
            start += self.ready[k].size
        return results

    cdef void begin(self) noexcept:
        self.count = self.total = self.scratch_size = 0

    cdef bint fits(self) noexcept:
        """Whether all that is staged has room, and a blank record behind it, as the end of a file may need one."""
        return (
            self.is_open and self.window is not None and self.count > 0 and self.total <= MAX_BYTES_AT_ONCE
            and self.window_start <= self.end_offset and self.end_offset + self.total + BLANK_SIZE <= self.writable_to
        )

    cdef int take_back(self) except -1:
        """Undo what staging has taken, newest first."""
        cdef Ready* one
        while self.count > 0:
            self.count -= 1
            one = self.ready + self.count
            (<list> one.next_offsets)[one.head.queue_id] = one.head.queue_offset
            if one.turn >= 0:
                self.turns[<object> one.topic_name] = one.turn
        return 0

    cdef int room(self, int64_t more) except -1:
        """Scratch memory for ``more`` bytes behind those used."""
        cdef int64_t wanted = self.scratch_size + more
        cdef uint8_t* larger
        if wanted > self.scratch_capacity:
            wanted = max(2 * self.scratch_capacity, wanted, 4096)
            larger = <uint8_t*> realloc(self.scratch, wanted)
            if larger == NULL:
                raise MemoryError()
            self.scratch, self.scratch_capacity = larger, wanted
        return 0

    cdef Ready* another(self) except NULL:
        cdef Ready* larger
        if self.count == self.ready_capacity:
            larger = <Ready*> realloc(self.ready, (self.count * 2 + 16) * sizeof(Ready))
            if larger == NULL:
                raise MemoryError()
            self.ready, self.ready_capacity = larger, self.count * 2 + 16
        return self.ready + self.count

    cdef bint stage(self, given) except *:
        """Check a message and make it the next of ``ready``; False leaves it and its errors to the plain path."""
        cdef Ready* one = self.another()
        cdef MessageFields message
        if type(given) is not self.message_type:
            return False
        message = <MessageFields> given
        topic = message.topic
        body = message.body
        if type(topic) is not str or type(body) is not bytes:
            return False
        count = self.queue_counts.get(topic)
        if count is None or not take_text(topic, &one.topic) or one.topic.size > 127:
            return False
        take_bytes(body, &one.body)
        if one.body.size > min(self.max_body, <int64_t> MAX_BYTES_AT_ONCE):
            return False
        if not take_numbers(message, &one.head) or not self.stage_properties(message, one):
            return False
        one.size = MIN_RECORD_SIZE - 2 * HOST_V4_SIZE + 2 * PyBytes_GET_SIZE(self.store_host)
        one.size += one.body.size + one.topic.size + one.properties_size
        return self.take_place(<str> topic, <int64_t> count, message.queue_id, one)

    cdef bint take_place(self, str topic, int64_t count, queue_id, Ready* one) except *:
        """Choose queue and queue offset. Last of all checks, because from here on the message has taken something."""
        cdef object offsets = self.next_offsets.get(topic)
        cdef int64_t queue, turn = -1
        if queue_id is None:
            turn = self.turns.get(topic, 0)
            queue = turn % count
        elif type(queue_id) is int and 0 <= queue_id < count:
            queue = queue_id
        else:
            return False
        if offsets is None or queue >= PyList_GET_SIZE(<list> offsets):
            return False
        if turn >= 0:
            self.turns[topic] = turn + 1
        one.turn, one.topic_name = turn, <PyObject*> topic
        one.next_offsets = <PyObject*> offsets  # held by the dict, from which none is ever removed
        one.head.queue_id = <int32_t> queue
        one.head.queue_offset = (<list> offsets)[queue]
        (<list> offsets)[queue] = one.head.queue_offset + 1
        self.count += 1
        self.total += one.size
        return True

    cdef bint stage_properties(self, MessageFields message, Ready* one) except *:
        """The properties string, its names in the order in which a broker's map gives them."""
        cdef Property pairs[MAX_PAIRS]
        cdef int count, k
        cdef object tags = message.tags
        cdef object keys = message.keys
        cdef object given = message.properties
        one.properties_at, one.properties_size = self.scratch_size, 0
        if type(given) is not dict or type(keys) is not tuple and type(keys) is not list:
            return False
        if self.plain_property is not None and self.plain_property in <dict> given:
            return False
        count = collect_pairs(<dict> given, tags, keys if len(keys) > 0 else None, pairs)
        if count < 0:
            return False
        in_map_order(pairs, count)
        for k in range(count):
            if k > 0:
                self.put_byte(2)
            if not self.put_text(<object> pairs[k].name, True):
                return False
            self.put_byte(1)
            if pairs[k].value == <PyObject*> keys:
                if not self.put_keys(keys):
                    return False
            elif not self.put_text(<object> pairs[k].value, False):
                return False
        one.properties_size = self.scratch_size - one.properties_at
        return one.properties_size <= MAX_PROPERTIES_SIZE

    cdef int put_byte(self, uint8_t byte) except -1:
        self.room(1)
        self.scratch[self.scratch_size] = byte
        self.scratch_size += 1
        return 0

    cdef bint put_text(self, text, bint is_name) except *:
        """One name or value; False for what would not read back as it is."""
        cdef Bytes part
        cdef int32_t mark
        if not take_text(text, &part) or not 0 < part.size <= MAX_PROPERTIES_SIZE:
            return False
        mark = mq_next_mark(part.at, 0, <int32_t> part.size)
        while mark < part.size:
            if is_name or part.at[mark] != 1:
                return False
            mark = mq_next_mark(part.at, mark + 1, <int32_t> part.size)
        self.room(part.size)
        memcpy(self.scratch + self.scratch_size, part.at, part.size)
        self.scratch_size += part.size
        return True

    cdef bint put_keys(self, keys) except *:
        """All keys in one value, parted by blanks, which no key may hold."""
        cdef Py_ssize_t k
        cdef int64_t start
        for k in range(len(keys)):
            if k > 0:
                self.put_byte(32)
            start = self.scratch_size
            if not self.put_text(keys[k], False):
                return False
            if memchr(self.scratch + start, 32, self.scratch_size - start) != NULL:
                return False
        return True

    cdef void write(self, int64_t now) noexcept:
        """Write all that is staged. Nothing can fail from here on: a failed put must leave no trace."""
        cdef int64_t k
        cdef Ready* one
        cdef Bytes host
        cdef Bytes properties
        host.at, host.size = <const uint8_t*> PyBytes_AS_STRING(self.store_host), PyBytes_GET_SIZE(self.store_host)
        self.last_timestamp_ms = max(now, self.last_timestamp_ms)
        for k in range(self.count):
            one = self.ready + k
            if one.head.born_timestamp_ms < 0:
                one.head.born_timestamp_ms = now
            one.head.store_timestamp_ms = self.last_timestamp_ms
            one.head.physical_offset = self.end_offset
            properties.at, properties.size = self.scratch + one.properties_at, one.properties_size
            write_record(
                self.window.at + (self.end_offset - self.window_start), one.size, &one.head, &one.body, &one.topic,
                &properties, &host, &host,
            )
            self.last_record_offset = self.end_offset
            self.end_offset += one.size

    cdef int fill(self, result, Py_ssize_t k, int64_t physical_offset) except -1:
        """Give the result of message ``k`` its fields, without a constructor."""
        cdef Ready* one = self.ready + k
        cdef uint8_t address[HOST_V6_SIZE + 8]
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.store_host)
        memcpy(address, PyBytes_AS_STRING(self.store_host), size)
        mq_put64(address + size, physical_offset)
        set_item(result, 0, self.put_ok)
        set_item(result, 1, mq_hex(address, size + 8))
        set_item(result, 2, (<const char*> one.topic.at)[:one.topic.size].decode())
        set_item(result, 3, one.head.queue_id)
        set_item(result, 4, one.head.queue_offset)
        set_item(result, 5, physical_offset)
        set_item(result, 6, one.size)
        set_item(result, 7, one.head.store_timestamp_ms)
        return 0


cdef inline bint take_text(text, Bytes* part) noexcept:
    """UTF-8 of a str, which the str keeps; False for anything that has none."""
    cdef Py_ssize_t size = 0
    if type(text) is not str:
        return False
    part.at = <const uint8_t*> mq_utf8(text, &size)
    part.size = size
    if part.at == NULL:
        PyErr_Clear()
        return False
    return True


cdef bint take_numbers(MessageFields message, Head* head) except *:
    """The numbers of an ordinary message: no delay, no transaction, the store's own host."""
    cdef object born = message.born_timestamp_ms
    cdef int64_t delay_level = 0
    if message.born_host is not None:
        return False
    try:
        delay_level = exact(message.delay_level)
        head.flag = exact32(message.flag)
        head.sys_flag = exact32(message.sys_flag)
        head.reconsume_times = exact32(message.reconsume_times)
        head.prepared_transaction_offset = exact(message.prepared_transaction_offset)
        head.born_timestamp_ms = -1 if born is None else exact(born)
    except (OverflowError, TypeError):
        return False
    if delay_level != 0 or head.sys_flag < 0 or head.sys_flag & TRANSACTION_MASK or head.reconsume_times < 0:
        return False
    if head.prepared_transaction_offset < 0 or (born is not None and head.born_timestamp_ms < 0):
        return False
    head.magic = MAGIC_V1
    return True


cdef inline int64_t exact(number) except? -1:
    """A number that is a plain int; other kinds may run code of their own when they are converted."""
    if type(number) is not int:
        raise TypeError(type(number).__name__)
    return number


cdef inline int32_t exact32(number) except? -1:
    """The same for a field of 32 bits; OverflowError for what does not fit."""
    if type(number) is not int:
        raise TypeError(type(number).__name__)
    return number


cdef int collect_pairs(dict given, tags, keys, Property* pairs) except -2:
    """All names and values, in the order in which a producer sets them; how many, or -1 when it is no ordinary case."""
    cdef int count = 0
    cdef PyObject* name
    cdef PyObject* value
    cdef Py_ssize_t at = 0
    if len(given) + 2 > MAX_PAIRS:
        return -1
    while PyDict_Next(given, &at, &name, &value):
        if type(<object> name) is not str or type(<object> value) is not str:
            return -1
        if (tags is not None or keys is not None) and (<str> name == "TAGS" or <str> name == "KEYS"):
            return -1
        pairs[count].name, pairs[count].value = name, value
        count += 1
    if tags is not None:
        pairs[count].name, pairs[count].value = <PyObject*> PROPERTY_TAGS, <PyObject*> tags
        count += 1
    if keys is not None:
        pairs[count].name, pairs[count].value = <PyObject*> PROPERTY_KEYS, <PyObject*> keys
        count += 1
    return count


cdef str PROPERTY_TAGS = "TAGS"
cdef str PROPERTY_KEYS = "KEYS"


cdef void in_map_order(Property* pairs, int count) noexcept:
    """Sort by place in the map; names of one place stay in the order in which they came."""
    cdef Bytes name
    cdef Property moved
    cdef uint32_t code
    cdef int k, at
    for k in range(count):
        pairs[k].place = 0
        if take_text(<object> pairs[k].name, &name):
            code = java_hash(0, name.at, name.size)
            pairs[k].place = (code ^ code >> 16) & (MAP_PLACES - 1)
        moved = pairs[k]
        at = k
        while at > 0 and pairs[at - 1].place > moved.place:
            pairs[at] = pairs[at - 1]
            at -= 1
        pairs[at] = moved


cdef inline void set_item(object result, Py_ssize_t k, object value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(result, k, value)


def log_tail(message_type, result_type, put_ok, bytes store_host, int64_t max_body, /):
    """See mqstore.kernels.api.Kernels.log_tail."""
    return LogTail(message_type, result_type, put_ok, store_host, max_body)
