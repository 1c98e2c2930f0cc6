import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs in the 4.9 line. */
final class Version {
    /** Whether further queues of a message can be light queues only. */
    static final boolean LIGHT_QUEUES_ONLY = false;

    @SuppressWarnings("serial")
    static final class Inner extends MessageExtBrokerInner {
    }

    private Version() {
    }

    /** A store that never delivers delayed messages by itself, so that a read leaves the log as it found it. */
    static DefaultMessageStore open(MessageStoreConfig config, BrokerStatsManager stats) throws Exception {
        return new DefaultMessageStore(config, stats, (t, q, o, g, s, f, p) -> { }, new BrokerConfig()) {
            @Override
            public void handleScheduleMessageService(BrokerRole role) {
            }
        };
    }

    /** The 4.9 store rewrites delayed messages itself. */
    static void rewriteDelayed(MessageExtBrokerInner message, int levels) {
    }

    static MessageFilter filter(String topic, String expression) throws Exception {
        return new DefaultMessageFilter(FilterAPI.buildSubscriptionData(topic, expression));
    }

    static Map<String, List<Integer>> queues(DefaultMessageStore store) {
        Map<String, List<Integer>> result = new TreeMap<>();
        for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueue>> entry : store.getConsumeQueueTable().entrySet()) {
            result.computeIfAbsent(entry.getKey(), topic -> new ArrayList<>()).addAll(entry.getValue().keySet());
        }
        return result;
    }

    static long maxPhysicOffset(DefaultMessageStore store, String topic, int queueId) {
        return store.getConsumeQueueTable().get(topic).get(queueId).getMaxPhysicOffset();
    }

    /** The units in [begin, end) as {queueOffset, physicalOffset, size, tagsCode}. */
    static List<long[]> units(DefaultMessageStore store, String topic, int queueId, long begin, long end) {
        ConsumeQueue queue = store.getConsumeQueueTable().get(topic).get(queueId);
        List<long[]> units = new ArrayList<>();
        for (long offset = begin; offset < end; ) {
            SelectMappedBufferResult found = queue.getIndexBuffer(offset);
            if (found == null) {
                break;
            }
            try {
                for (int i = 0; i < found.getSize() && offset < end; i += ConsumeQueue.CQ_STORE_UNIT_SIZE, offset++) {
                    long physicalOffset = found.getByteBuffer().getLong();
                    int size = found.getByteBuffer().getInt();
                    units.add(new long[] {offset, physicalOffset, size, found.getByteBuffer().getLong()});
                }
            } finally {
                found.release();
            }
        }
        return units;
    }

    /** By-time look-up of the upper bound, which 4.9 does not have. */
    static Long upperOffsetByTime(DefaultMessageStore store, String topic, int queueId, long timestamp) {
        return null;
    }

    static void extraCheckpoint(DefaultMessageStore store, Map<String, Object> checkpoint) {
    }
}
