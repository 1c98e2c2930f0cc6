import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/**
 * Plain loops over the real store, timed after the virtual machine had time to compile them. Each does what the
 * function of its name does to a store of ours, with the same names of options and figures.
 */
final class Bench {
    private static final String TOPIC = "BenchTopic";
    private static final int AT_A_TIME = 32;
    private static final int PASSES = 3;
    /** Prime, so that every number comes once. */
    private static final long STRIDE = 7919;

    private final RealStore real;
    private final Map<String, String> options;
    private final int count;
    private final byte[] body;
    private final int batch;
    private final int threads;
    private final int topics;
    private final int consumers;
    private long[] nanos;

    Bench(RealStore real, Map<String, String> options) {
        this.real = real;
        this.options = options;
        count = number("count", 0);
        body = new byte[number("size", 1024)];
        batch = number("batch", 1);
        threads = number("threads", 1);
        topics = number("topics", 1);
        consumers = number("consumers", 0);
    }

    private int number(String name, int otherwise) {
        return Integer.parseInt(options.getOrDefault(name, Integer.toString(otherwise)));
    }

    Map<String, Object> run(String work) throws Exception {
        Map<String, Object> figures = new LinkedHashMap<>();
        switch (work) {
            case "put":
                put(figures);
                break;
            case "get":
                get(figures);
                break;
            case "query":
                query(figures);
                break;
            case "open_store":
                figures.put("failed", Math.max(0, count - real.store.getMaxOffsetInQueue(TOPIC, 0)));
                break;
            default:
                throw new IllegalArgumentException("unknown work " + work);
        }
        figures.put("resident_kib", residentKib());
        return figures;
    }

    /** Messages from all threads, each into a queue of its own or round-robin to the topics. */
    private void put(Map<String, Object> figures) throws Exception {
        long failed = 0;
        for (int topic = 0; topic < topics && topics > 1; topic++) {
            failed += putOne("bench" + topic, 0, 0) ? 0 : 1;
        }
        failed += run("WarmTopic", number("warm", 0));
        real.waitForDispatch();
        nanos = options.containsKey("time_each") ? new long[count] : null;
        AtomicBoolean stopped = new AtomicBoolean();
        AtomicLong consumed = new AtomicLong();
        CountDownLatch followed = new CountDownLatch(Math.min(consumers, threads));
        for (int first = 0; first < Math.min(consumers, threads); first++) {
            int own = first;
            new Thread(() -> follow(own, stopped, consumed, followed)).start();
        }
        long begin = System.nanoTime();
        failed += run(TOPIC, count);
        double seconds = secondsSince(begin);
        real.waitForDispatch();
        figures.put("dispatched_per_second", count / secondsSince(begin));
        stopped.set(true);
        followed.await();
        figures.put("failed", failed);
        figures.put("per_second", count / seconds);
        if (nanos != null) {
            percentiles(figures);
        }
        if (consumers > 0) {
            figures.put("consumed", consumed.get());
        }
    }

    private long run(String topic, long messages) throws InterruptedException {
        AtomicLong failed = new AtomicLong();
        CountDownLatch done = new CountDownLatch(threads);
        for (int thread = 0; thread < threads; thread++) {
            int queueId = thread;
            new Thread(() -> {
                try {
                    failed.addAndGet(batch > 1 ? putBatches(topic, queueId, messages / threads)
                        : produce(topic, queueId, messages));
                } catch (Exception | Error stop) {
                    stop.printStackTrace();
                    failed.incrementAndGet();
                } finally {
                    done.countDown();
                }
            }).start();
        }
        done.await();
        return failed.get();
    }

    private long produce(String topic, int queueId, long messages) throws Exception {
        long failed = 0;
        for (long i = queueId; i < messages; i += threads) {
            long before = System.nanoTime();
            boolean isOk = topics == 1 ? putOne(topic, queueId, i) : putOne("bench" + i % topics, 0, i);
            if (nanos != null) {
                nanos[(int) i] = System.nanoTime() - before;
            }
            failed += isOk ? 0 : 1;
        }
        return failed;
    }

    private boolean putOne(String topic, int queueId, long number) throws Exception {
        Version.Inner message = Workload.message(topic, queueId, body);
        MessageAccessor.putProperty(message, "TAGS", "bench");
        MessageAccessor.putProperty(message, "UNIQ_KEY", Long.toString(number));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return real.store.putMessage(message).isOk();
    }

    private long putBatches(String topic, int queueId, long messages) throws Exception {
        long failed = 0;
        for (long first = 0; first < messages; first += batch) {
            List<Message> elements = new ArrayList<>();
            for (long i = first; i < Math.min(first + batch, messages); i++) {
                Message element = new Message(topic, body);
                MessageAccessor.putProperty(element, "TAGS", "bench");
                MessageAccessor.putProperty(element, "UNIQ_KEY", Long.toString(i));
                elements.add(element);
            }
            MessageExtBatch all = new MessageExtBatch();
            all.setTopic(topic);
            all.setQueueId(queueId);
            all.setBody(MessageDecoder.encodeMessages(elements));
            all.setBornTimestamp(System.currentTimeMillis());
            Version.Inner hosts = Workload.message(topic, queueId, body);
            all.setBornHost(hosts.getBornHost());
            all.setStoreHost(hosts.getStoreHost());
            failed += real.store.putMessages(all).isOk() ? 0 : elements.size();
        }
        return failed;
    }

    /** Reads queues as they grow, until it is told to stop and nothing is left. */
    private void follow(int first, AtomicBoolean stopped, AtomicLong consumed, CountDownLatch followed) {
        long[] offsets = new long[threads];
        try {
            for (boolean isLast = false; ; ) {
                int found = 0;
                for (int queueId = first; queueId < threads; queueId += consumers) {
                    int here = readSome(queueId, offsets);
                    consumed.addAndGet(here);
                    found += here;
                }
                if (found == 0) {
                    if (isLast) {
                        return;
                    }
                    isLast = stopped.get();
                    Thread.sleep(1);
                }
            }
        } catch (InterruptedException | RuntimeException stop) {
            stop.printStackTrace();
        } finally {
            followed.countDown();
        }
    }

    /** One getMessage, decoded; {@code offsets} goes on. */
    private int readSome(int queueId, long[] offsets) {
        GetMessageResult result = real.store.getMessage("bench", TOPIC, queueId, offsets[queueId], AT_A_TIME, null);
        try {
            int found = 0;
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                found += MessageDecoder.decode(buffer) == null ? 0 : 1;
            }
            offsets[queueId] = result.getNextBeginOffset();
            return found;
        } finally {
            result.release();
        }
    }

    /** Reads one queue from its beginning to its end and decodes every message. */
    private void get(Map<String, Object> figures) {
        double seconds = 0;
        long found = 0;
        for (int pass = 0; pass < PASSES; pass++) {
            long[] offsets = new long[1];
            long begin = System.nanoTime();
            found = 0;
            for (int here; (here = readSome(0, offsets)) > 0; ) {
                found += here;
            }
            seconds = secondsSince(begin);
        }
        figures.put("messages", found);
        figures.put("failed", count - found);
        figures.put("per_second", found / seconds);
    }

    /** Looks messages up by their keys, in an order that jumps about; the third pass counts. */
    private void query(Map<String, Object> figures) {
        int lookups = number("lookups", count);
        double seconds = 0;
        long found = 0;
        nanos = new long[lookups];
        for (int pass = 0; pass < PASSES; pass++) {
            found = 0;
            long begin = System.nanoTime();
            for (int i = 0; i < lookups; i++) {
                long before = System.nanoTime();
                found += findOne(i * STRIDE % count);
                nanos[i] = System.nanoTime() - before;
            }
            seconds = secondsSince(begin);
        }
        figures.put("messages", found);
        figures.put("failed", lookups - found);
        figures.put("per_second", lookups / seconds);
        percentiles(figures);
    }

    private int findOne(long number) {
        QueryMessageResult result =
            real.store.queryMessage(TOPIC, Long.toString(number), AT_A_TIME, 0, Long.MAX_VALUE);
        try {
            int found = 0;
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                found += MessageDecoder.decode(buffer) == null ? 0 : 1;
            }
            return found == 0 ? 0 : 1;
        } finally {
            result.release();
        }
    }

    private void percentiles(Map<String, Object> figures) {
        long[] ordered = nanos.clone();
        Arrays.sort(ordered);
        figures.put("p50_us", at(ordered, 0.5));
        figures.put("p99_us", at(ordered, 0.99));
        figures.put("p999_us", at(ordered, 0.999));
        figures.put("max_us", at(ordered, 1));
    }

    private static double at(long[] ordered, double part) {
        return ordered[Math.min(ordered.length - 1, (int) (ordered.length * part))] / 1e3;
    }

    /** Resident memory of this process: its own, and pages of files; empty where the system does not say. */
    private static Map<String, Object> residentKib() throws IOException {
        Map<String, Object> found = new LinkedHashMap<>();
        if (Files.exists(Paths.get("/proc/self/status"))) {
            for (String line : Files.readAllLines(Paths.get("/proc/self/status"), StandardCharsets.UTF_8)) {
                String[] words = line.split("\\s+");
                if (words[0].equals("RssAnon:") || words[0].equals("RssFile:")) {
                    found.put(words[0].replace(":", ""), Long.parseLong(words[1]));
                }
            }
        }
        return found;
    }

    private static double secondsSince(long begin) {
        return (System.nanoTime() - begin) / (double) TimeUnit.SECONDS.toNanos(1);
    }
}
