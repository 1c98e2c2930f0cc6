import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/** Plain loops over the real store, timed after the virtual machine had time to compile them. */
final class Bench {
    private static final String TOPIC = "BenchTopic";
    private static final int AT_A_TIME = 32;
    private static final int PASSES = 3;
    /** Prime, so that every number comes once. */
    private static final long STRIDE = 7919;

    private final RealStore real;
    private final byte[] body;
    private int batch = 1;

    Bench(RealStore real, int bodySize) {
        this.real = real;
        this.body = new byte[bodySize];
    }

    /** Puts {@code count} messages from {@code threads} threads, each into a queue of its own, {@code batch} at a time. */
    Map<String, Object> put(long count, int threads, long warm, int batch) throws Exception {
        this.batch = batch;
        long failed = run("WarmTopic", warm, threads);
        real.waitForDispatch();
        long begin = System.nanoTime();
        failed += run(TOPIC, count, threads);
        double seconds = secondsSince(begin);
        real.waitForDispatch();
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("messages", count);
        summary.put("failed", failed);
        summary.put("seconds", seconds);
        summary.put("messagesPerSecond", count / seconds);
        summary.put("secondsUntilDispatched", secondsSince(begin));
        return summary;
    }

    private long run(String topic, long count, int threads) throws InterruptedException {
        AtomicLong failed = new AtomicLong();
        CountDownLatch done = new CountDownLatch(threads);
        for (int thread = 0; thread < threads; thread++) {
            int queueId = thread;
            new Thread(() -> {
                try {
                    if (batch > 1) {
                        failed.addAndGet(putBatches(topic, queueId, count / threads));
                    } else {
                        for (long i = queueId; i < count; i += threads) {
                            failed.addAndGet(putOne(topic, queueId, i) ? 0 : 1);
                        }
                    }
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

    private boolean putOne(String topic, int queueId, long number) throws Exception {
        Version.Inner message = Workload.message(topic, queueId, body);
        MessageAccessor.putProperty(message, "TAGS", "bench");
        MessageAccessor.putProperty(message, "UNIQ_KEY", Long.toString(number));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        PutMessageResult result = real.store.putMessage(message);
        return result.isOk();
    }

    private long putBatches(String topic, int queueId, long count) throws Exception {
        long failed = 0;
        for (long first = 0; first < count; first += batch) {
            List<Message> elements = new ArrayList<>();
            for (long i = first; i < Math.min(first + batch, count); i++) {
                Message element = new Message(topic, body);
                MessageAccessor.putProperty(element, "TAGS", "bench");
                MessageAccessor.putProperty(element, "UNIQ_KEY", Long.toString(i));
                elements.add(element);
            }
            MessageExtBatch messages = new MessageExtBatch();
            messages.setTopic(topic);
            messages.setQueueId(queueId);
            messages.setBody(MessageDecoder.encodeMessages(elements));
            messages.setBornTimestamp(System.currentTimeMillis());
            Version.Inner hosts = Workload.message(topic, queueId, body);
            messages.setBornHost(hosts.getBornHost());
            messages.setStoreHost(hosts.getStoreHost());
            failed += real.store.putMessages(messages).isOk() ? 0 : elements.size();
        }
        return failed;
    }

    /** Reads one queue from its beginning to its end and decodes every message. */
    Map<String, Object> get(long count) throws Exception {
        long failed = run(TOPIC, count, 1);
        real.waitForDispatch();
        double seconds = 0;
        long found = 0;
        for (int pass = 0; pass < PASSES; pass++) {
            long begin = System.nanoTime();
            found = readAll();
            seconds = secondsSince(begin);
        }
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("messages", found);
        summary.put("failed", failed + count - found);
        summary.put("seconds", seconds);
        summary.put("messagesPerSecond", found / seconds);
        return summary;
    }

    private long readAll() {
        long found = 0;
        for (long offset = 0; ; ) {
            GetMessageResult result = real.store.getMessage("bench", TOPIC, 0, offset, AT_A_TIME, null);
            try {
                if (result.getMessageCount() == 0) {
                    return found;
                }
                for (ByteBuffer buffer : result.getMessageBufferList()) {
                    found += MessageDecoder.decode(buffer) == null ? 0 : 1;
                }
                offset = result.getNextBeginOffset();
            } finally {
                result.release();
            }
        }
    }

    /** Looks {@code count} messages up by their unique keys, in an order that jumps about; the third pass counts. */
    Map<String, Object> query(long count) throws Exception {
        long failed = run(TOPIC, count, 1);
        real.waitForDispatch();
        double seconds = 0;
        long found = 0;
        long[] nanos = new long[(int) count];
        for (int pass = 0; pass < PASSES; pass++) {
            found = 0;
            long begin = System.nanoTime();
            for (int i = 0; i < count; i++) {
                long before = System.nanoTime();
                found += findOne(i * STRIDE % count);
                nanos[i] = System.nanoTime() - before;
            }
            seconds = secondsSince(begin);
        }
        java.util.Arrays.sort(nanos);
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("messages", found);
        summary.put("failed", failed + count - found);
        summary.put("messagesPerSecond", found / seconds);
        summary.put("p50Micros", nanos[nanos.length / 2] / 1000.0);
        summary.put("p99Micros", nanos[(int) (nanos.length * 0.99)] / 1000.0);
        return summary;
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

    private static double secondsSince(long begin) {
        return (System.nanoTime() - begin) / (double) TimeUnit.SECONDS.toNanos(1);
    }
}
