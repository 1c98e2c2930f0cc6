import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs in the 5.x line. */
final class Version {
    /** Whether further queues of a message can be light queues only. */
    static final boolean LIGHT_QUEUES_ONLY = true;

    @SuppressWarnings("serial")
    static final class Inner extends MessageExtBrokerInner {
    }

    private Version() {
    }

    static DefaultMessageStore open(MessageStoreConfig config, BrokerStatsManager stats) throws Exception {
        return new DefaultMessageStore(
            config, stats, (t, q, o, g, s, f, p) -> { }, new BrokerConfig(), new ConcurrentHashMap<>());
    }

    /** In 5.x a hook of the broker, outside the store, moves delayed messages to the schedule topic. */
    static void rewriteDelayed(MessageExtBrokerInner message, int levels) {
        if (message.getDelayTimeLevel() <= 0) {
            return;
        }
        int level = Math.min(message.getDelayTimeLevel(), levels);
        message.setDelayTimeLevel(level);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        message.setQueueId(level - 1);
    }

    static MessageFilter filter(String topic, String expression) throws Exception {
        return new DefaultMessageFilter(FilterAPI.buildSubscriptionData(topic, expression));
    }

    static Map<String, List<Integer>> queues(DefaultMessageStore store) {
        Map<String, List<Integer>> result = new TreeMap<>();
        for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueueInterface>> entry
            : store.getConsumeQueueTable().entrySet()) {
            result.computeIfAbsent(entry.getKey(), topic -> new ArrayList<>()).addAll(entry.getValue().keySet());
        }
        return result;
    }

    static long maxPhysicOffset(DefaultMessageStore store, String topic, int queueId) {
        return store.getConsumeQueueTable().get(topic).get(queueId).getMaxPhysicOffset();
    }

    /** The units in [begin, end) as {queueOffset, physicalOffset, size, tagsCode}. */
    static List<long[]> units(DefaultMessageStore store, String topic, int queueId, long begin, long end) {
        ConsumeQueueInterface queue = store.getConsumeQueueTable().get(topic).get(queueId);
        List<long[]> units = new ArrayList<>();
        for (long offset = begin; offset < end; ) {
            ReferredIterator<CqUnit> found = queue.iterateFrom(offset);
            if (found == null) {
                break;
            }
            long before = offset;
            try {
                while (found.hasNext() && offset < end) {
                    CqUnit unit = found.next();
                    units.add(new long[] {unit.getQueueOffset(), unit.getPos(), unit.getSize(), unit.getTagsCode()});
                    offset = unit.getQueueOffset() + 1;
                }
            } finally {
                found.release();
            }
            if (offset == before) {
                break;
            }
        }
        return units;
    }

    static Long upperOffsetByTime(DefaultMessageStore store, String topic, int queueId, long timestamp) {
        return store.getOffsetInQueueByTime(topic, queueId, timestamp, BoundaryType.UPPER);
    }

    static void extraCheckpoint(DefaultMessageStore store, Map<String, Object> checkpoint) {
        checkpoint.put("masterFlushedOffset", store.getStoreCheckpoint().getMasterFlushedOffset());
        checkpoint.put("confirmPhyOffset", store.getStoreCheckpoint().getConfirmPhyOffset());
    }
}
