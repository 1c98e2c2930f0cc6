import java.io.BufferedWriter;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Everything the real store says about an opened directory, in three files: EXPECTED.jsonl (one line for each commit
 * log record), EXPECTED-CQ.jsonl (one for each consume queue unit) and EXPECTED-QUEUES.json (the rest).
 *
 * An "ask" file chooses the look-ups; without one a default set is asked. Its lines are tab separated, topics, keys
 * and expressions percent-encoded: {@code time TOPIC QUEUE TIMESTAMP}, {@code key TOPIC KEY MAX BEGIN END},
 * {@code get TOPIC QUEUE OFFSET MAX EXPRESSION}.
 */
final class Dump {
    private static final int BLANK_MAGIC = 0xCBD43194;
    private static final int PULL = 32;
    private static final long FAR_MS = 100_000;

    private final RealStore real;
    private final DefaultMessageStore store;
    private final Path root;
    private final Path askFile;
    private final List<String> problems = new ArrayList<>();
    private final List<Object> blanks = new ArrayList<>();
    private final TreeMap<Long, Map<String, Object>> records = new TreeMap<>();
    private final Map<String, Map<String, Object>> queues = new LinkedHashMap<>();
    private final List<Map<String, Object>> units = new ArrayList<>();
    private final List<Object> keys = new ArrayList<>();
    private final List<Object> gets = new ArrayList<>();

    Dump(RealStore real, Path root, Path askFile) {
        this.real = real;
        this.store = real.store;
        this.root = root;
        this.askFile = askFile;
    }

    Map<String, Object> write(Path out) throws Exception {
        scanLog();
        for (Map.Entry<String, List<Integer>> entry : Version.queues(store).entrySet()) {
            for (int queueId : new TreeSet<>(entry.getValue())) {
                describeQueue(entry.getKey(), queueId);
            }
        }
        if (askFile == null) {
            askDefaults();
        } else {
            askFromFile();
        }
        Map<String, Object> whole = new LinkedHashMap<>();
        whole.put("version", MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).substring(1).replace('_', '.'));
        whole.put("minPhyOffset", store.getMinPhyOffset());
        whole.put("maxPhyOffset", store.getMaxPhyOffset());
        whole.put("messages", records.size());
        whole.put("blanks", blanks);
        whole.put("getMessage", walkQueues());
        whole.put("checkpoint", checkpoint());
        whole.put("config", configuration());
        whole.put("problems", problems);
        whole.put("queues", queues.values());
        whole.put("keys", keys);
        whole.put("gets", gets);
        whole.put("files", files());

        Files.createDirectories(out);
        writeLines(out.resolve("EXPECTED.jsonl"), records.values());
        writeLines(out.resolve("EXPECTED-CQ.jsonl"), units);
        writeLines(out.resolve("EXPECTED-QUEUES.json"), List.of(whole));
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("messages", records.size());
        summary.put("units", units.size());
        summary.put("problems", problems.size());
        return summary;
    }

    // --- commit log ---

    private void scanLog() {
        long offset = store.getMinPhyOffset();
        while (offset < store.getMaxPhyOffset()) {
            SelectMappedBufferResult found = store.getCommitLogData(offset);
            if (found == null) {
                problems.add("no log data at " + offset);
                return;
            }
            try {
                ByteBuffer bytes = found.getByteBuffer();
                int size = bytes.getInt(0);
                if (size <= 0 || size > found.getSize()) {
                    problems.add("record size " + size + " at " + offset);
                    return;
                }
                if (bytes.getInt(4) == BLANK_MAGIC) {
                    blanks.add(map("offset", offset, "size", size));
                } else {
                    record(offset, bytes, size);
                }
                offset += size;
            } finally {
                found.release();
            }
        }
    }

    private void record(long offset, ByteBuffer bytes, int size) {
        byte[] raw = new byte[size];
        bytes.duplicate().get(raw);
        MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(raw), true, false);
        if (message == null || message.getStoreSize() != size || message.getCommitLogOffset() != offset) {
            problems.add("record at " + offset + " does not decode");
            return;
        }
        MessageExt again = store.lookMessageByOffset(offset);
        if (again == null || again.getStoreSize() != size) {
            problems.add("record at " + offset + " is not found by its offset");
        }
        CRC32 crc = new CRC32();
        crc.update(raw);
        records.put(offset, map(
            "commitLogOffset", offset, "storeSize", size, "magic", ByteBuffer.wrap(raw).getInt(4),
            "topic", message.getTopic(), "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(),
            "sysFlag", message.getSysFlag(), "flag", message.getFlag(),
            "bornTimestamp", message.getBornTimestamp(), "bornHost", host(message.getBornHost()),
            "storeTimestamp", message.getStoreTimestamp(), "storeHost", host(message.getStoreHost()),
            "bodyCRC", message.getBodyCRC(), "reconsumeTimes", message.getReconsumeTimes(),
            "preparedTransactionOffset", message.getPreparedTransactionOffset(),
            "msgId", message.getMsgId(),
            "body", Base64.getEncoder().encodeToString(message.getBody() == null ? new byte[0] : message.getBody()),
            "properties", message.getProperties() == null ? Map.of() : new TreeMap<>(message.getProperties()),
            "recordCrc32", crc.getValue(), "cq", new ArrayList<Object>()));
    }

    // --- consume queues ---

    private void describeQueue(String topic, int queueId) throws Exception {
        long begin = store.getMinOffsetInQueue(topic, queueId);
        long end = store.getMaxOffsetInQueue(topic, queueId);
        List<Object> files = new ArrayList<>();
        Path directory = root.resolve("consumequeue").resolve(topic).resolve(String.valueOf(queueId));
        for (Path file : filesBelow(directory)) {
            files.add(map("name", file.getFileName().toString(), "length", Files.size(file),
                "lastModified", Files.getLastModifiedTime(file).toMillis()));
        }
        queues.put(topic + '\t' + queueId, map(
            "topic", topic, "queueId", queueId, "minOffset", begin, "maxOffset", end,
            "maxPhysicOffset", Version.maxPhysicOffset(store, topic, queueId),
            "earliestMessageTime", store.getEarliestMessageTime(topic, queueId),
            "files", files, "offsetByTime", new ArrayList<Object>()));
        List<long[]> found = Version.units(store, topic, queueId, begin, end);
        if (found.size() != end - begin) {
            problems.add("queue " + topic + '-' + queueId + " gives " + found.size() + " of " + (end - begin) + " units");
        }
        for (long[] unit : found) {
            units.add(map("topic", topic, "queueId", queueId, "cqOffset", unit[0], "phyOffset", unit[1],
                "size", (int) unit[2], "tagsCode", unit[3]));
            Map<String, Object> record = records.get(unit[1]);
            if (record == null) {
                problems.add("unit " + unit[0] + " of " + topic + '-' + queueId + " points at no record: " + unit[1]);
            } else {
                list(record.get("cq")).add(map("topic", topic, "queueId", queueId, "cqOffset", unit[0],
                    "size", (int) unit[2], "tagsCode", unit[3]));
            }
        }
    }

    private Map<String, Object> walkQueues() {
        long messages = 0;
        long bytes = 0;
        TreeMap<String, Integer> statuses = new TreeMap<>();
        for (Map<String, Object> queue : queues.values()) {
            String topic = (String) queue.get("topic");
            int queueId = (Integer) queue.get("queueId");
            long offset = (Long) queue.get("minOffset");
            List<Long> given = new ArrayList<>();
            while (offset < (Long) queue.get("maxOffset")) {
                GetMessageResult result = store.getMessage("interop", topic, queueId, offset, PULL, null);
                statuses.merge(result.getStatus().toString(), 1, Integer::sum);
                given.addAll(offsets(result.getMessageBufferList()));
                messages += result.getMessageCount();
                bytes += result.getBufferTotalSize();
                long next = result.getNextBeginOffset();
                result.release();
                if (next <= offset) {
                    problems.add("getMessage of " + topic + '-' + queueId + " does not go on from " + offset);
                    break;
                }
                offset = next;
            }
            List<Long> pointedAt = unitsOf(queue).map(unit -> (Long) unit.get("phyOffset"))
                .filter(records::containsKey).collect(Collectors.toList());
            if (!given.equals(pointedAt)) {
                problems.add("getMessage of " + topic + '-' + queueId + " gives other records than its units point at");
            }
        }
        return map("messages", messages, "bytes", bytes, "statuses", statuses);
    }

    // --- look-ups ---

    private void askDefaults() {
        for (Map<String, Object> queue : queues.values()) {
            for (long timestamp : defaultTimes(queue)) {
                askTime((String) queue.get("topic"), (Integer) queue.get("queueId"), timestamp);
            }
        }
        Set<List<String>> asked = new LinkedHashSet<>();
        for (Map<String, Object> record : records.values()) {
            Map<?, ?> properties = (Map<?, ?>) record.get("properties");
            Object unique = properties.get(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
            if (unique != null) {
                asked.add(List.of((String) record.get("topic"), (String) unique));
            }
            Object keysOfRecord = properties.get(MessageConst.PROPERTY_KEYS);
            if (keysOfRecord != null) {
                for (String key : ((String) keysOfRecord).split(MessageConst.KEY_SEPARATOR)) {
                    asked.add(List.of((String) record.get("topic"), key));
                }
            }
        }
        for (List<String> pair : asked) {
            askKey(pair.get(0), pair.get(1), 64, 0, Long.MAX_VALUE);
        }
    }

    private Stream<Map<String, Object>> unitsOf(Map<String, Object> queue) {
        return units.stream().filter(unit ->
            unit.get("topic").equals(queue.get("topic")) && unit.get("queueId").equals(queue.get("queueId")));
    }

    private Set<Long> defaultTimes(Map<String, Object> queue) {
        TreeSet<Long> times = new TreeSet<>();
        List<Long> stored = unitsOf(queue)
            .map(unit -> records.get((Long) unit.get("phyOffset")))
            .filter(record -> record != null)
            .map(record -> (Long) record.get("storeTimestamp"))
            .collect(Collectors.toList());
        for (int part = 0; part <= 4 && !stored.isEmpty(); part++) {
            long timestamp = stored.get((stored.size() - 1) * part / 4);
            times.addAll(Arrays.asList(timestamp - 1, timestamp, timestamp + 1));
        }
        if (!stored.isEmpty()) {
            times.add(stored.get(0) - FAR_MS);
            times.add(stored.get(stored.size() - 1) + FAR_MS);
        }
        return times;
    }

    private void askFromFile() throws Exception {
        for (String line : Files.readAllLines(askFile)) {
            String[] word = line.split("\t", -1);
            String topic = URLDecoder.decode(word[1], StandardCharsets.UTF_8);
            switch (word[0]) {
                case "time":
                    askTime(topic, Integer.parseInt(word[2]), Long.parseLong(word[3]));
                    break;
                case "key":
                    askKey(topic, URLDecoder.decode(word[2], StandardCharsets.UTF_8), Integer.parseInt(word[3]),
                        Long.parseLong(word[4]), Long.parseLong(word[5]));
                    break;
                case "get":
                    askGet(topic, Integer.parseInt(word[2]), Long.parseLong(word[3]), Integer.parseInt(word[4]),
                        URLDecoder.decode(word[5], StandardCharsets.UTF_8));
                    break;
                default:
                    throw new IllegalArgumentException("unknown question " + word[0]);
            }
        }
    }

    private void askTime(String topic, int queueId, long timestamp) {
        Map<String, Object> queue = queues.get(topic + '\t' + queueId);
        if (queue == null) {
            problems.add("asked by time for a queue that is not there: " + topic + '-' + queueId);
            return;
        }
        list(queue.get("offsetByTime")).add(
            List.of(timestamp, store.getOffsetInQueueByTime(topic, queueId, timestamp)));
        Long upper = Version.upperOffsetByTime(store, topic, queueId, timestamp);
        if (upper != null) {
            list(queue.computeIfAbsent("offsetByTimeUpper", name -> new ArrayList<Object>()))
                .add(List.of(timestamp, upper));
        }
    }

    private void askKey(String topic, String key, int max, long begin, long end) {
        QueryMessageResult result = store.queryMessage(topic, key, max, begin, end);
        List<Long> found = offsets(result.getMessageBufferList());
        result.release();
        found.sort(null);
        keys.add(map("topic", topic, "key", key, "max", max, "begin", begin, "end", end, "offsets", found));
    }

    private void askGet(String topic, int queueId, long offset, int max, String expression) throws Exception {
        MessageFilter filter = expression.isEmpty() ? null : Version.filter(topic, expression);
        GetMessageResult result = store.getMessage("interop", topic, queueId, offset, max, filter);
        gets.add(map("topic", topic, "queueId", queueId, "offset", offset, "max", max, "expression", expression,
            "status", result.getStatus(), "nextBeginOffset", result.getNextBeginOffset(),
            "minOffset", result.getMinOffset(), "maxOffset", result.getMaxOffset(),
            "offsets", offsets(result.getMessageBufferList())));
        result.release();
    }

    private static List<Long> offsets(List<ByteBuffer> found) {
        // The physical offset stands at byte 28 of every record.
        return found.stream().map(bytes -> bytes.getLong(bytes.position() + 28)).collect(Collectors.toList());
    }

    // --- the rest ---

    private Map<String, Object> checkpoint() {
        Map<String, Object> checkpoint = map(
            "physicMsgTimestamp", store.getStoreCheckpoint().getPhysicMsgTimestamp(),
            "logicsMsgTimestamp", store.getStoreCheckpoint().getLogicsMsgTimestamp(),
            "indexMsgTimestamp", store.getStoreCheckpoint().getIndexMsgTimestamp());
        Version.extraCheckpoint(store, checkpoint);
        return checkpoint;
    }

    private Map<String, Object> configuration() {
        return map(
            "mappedFileSizeCommitLog", real.config.getMappedFileSizeCommitLog(),
            "mappedFileSizeConsumeQueue", real.config.getMappedFileSizeConsumeQueue(),
            "maxHashSlotNum", real.config.getMaxHashSlotNum(),
            "maxIndexNum", real.config.getMaxIndexNum(),
            "messageDelayLevel", real.config.getMessageDelayLevel());
    }

    private List<Object> files() throws IOException {
        List<Object> files = new ArrayList<>();
        for (Path file : filesBelow(root)) {
            files.add(map("path", root.relativize(file).toString(), "length", Files.size(file)));
        }
        return files;
    }

    private static List<Path> filesBelow(Path directory) throws IOException {
        if (!Files.isDirectory(directory)) {
            return List.of();
        }
        try (Stream<Path> paths = Files.walk(directory)) {
            return paths.filter(Files::isRegularFile).sorted().collect(Collectors.toList());
        }
    }

    private static void writeLines(Path file, Iterable<?> values) throws IOException {
        try (BufferedWriter writer = Files.newBufferedWriter(file)) {
            for (Object value : values) {
                writer.write(Json.text(value));
                writer.newLine();
            }
        }
    }

    private static String host(SocketAddress address) {
        InetSocketAddress socket = (InetSocketAddress) address;
        return socket.getAddress().getHostAddress() + ':' + socket.getPort();
    }

    private static Map<String, Object> map(Object... namesAndValues) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            map.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return map;
    }

    @SuppressWarnings("unchecked")
    private static List<Object> list(Object value) {
        return (List<Object>) value;
    }
}
