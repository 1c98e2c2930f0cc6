import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts a repeatable mix of every kind of message; only the timestamps differ between two runs of one seed. */
final class Workload {
    private static final String TOPIC_127 = "LongTopic_" + "abcdefghijklm".repeat(9);
    private static final String[] TOPICS = {"TopicTest", "OrderTopic_v2", "%RETRY%group-1", "TopicTest", TOPIC_127};
    private static final String[] TAGS = {null, "TagA", "TagB", "TagC", "paid", "\u652f\u4ed8", "AaBB"};
    // "Aa" and "BB" have one hash; the last stands beyond the basic plane.
    private static final String[] KEYS = {"Aa", "BB", "hot", "\u8ba2\u5355", "order 7", "a  b", "\ud83d\ude80"};
    private static final String[] WORDS = {"lazy", "commit", "rocket", "broker", "queue", "dog", "\u00e4\u00f6", "page"};
    private static final int[] DELAYS = {1, 2, 3, 5, 18, 25};
    private static final int PAUSE_EVERY = 10;
    // What a message may name as further queues, where the store is set to dispatch to such; later releases know light
    // queues only.
    private static final String[] LIGHT_QUEUES = {"%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b,%LMQ%c"};
    private static final String[] QUEUES = {"%LMQ%a", "%LMQ%a,%LMQ%b", "mirror", "TopicTest,%LMQ%b", "mirror,%LMQ%c"};

    private final RealStore real;
    private final Random random;
    private int made;

    Workload(RealStore real, long seed) {
        this.real = real;
        this.random = new Random(seed);
    }

    /** A message with the fields that the broker's front end always sets. */
    static Version.Inner message(String topic, int queueId, byte[] body) {
        Version.Inner message = new Version.Inner();
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(V4_BORN);
        message.setStoreHost(V4_STORE);
        return message;
    }

    void put(int count) throws Exception {
        for (int step = 0; made < count; step++) {
            if (step % PAUSE_EVERY == 0) {
                // Spreads the store timestamps, for look-ups by time.
                Thread.sleep(1);
            }
            if (random.nextInt(25) == 0 && count - made > 1) {
                putBatch(Math.min(count - made, 2 + random.nextInt(11)));
            } else {
                putOne();
            }
        }
    }

    private void putOne() {
        Version.Inner message = message(pick(TOPICS), random.nextInt(4), body());
        made++;
        addProperties(message);
        addHosts(message);
        message.setFlag(random.nextInt(4) == 0 ? random.nextInt() : 0);
        message.setReconsumeTimes(random.nextInt(10) == 0 ? random.nextInt(16) : 0);
        int sysFlag = random.nextInt(20) == 0 ? MessageSysFlag.COMPRESSED_FLAG : 0;
        switch (random.nextInt(16)) {
            case 0:
                sysFlag |= MessageSysFlag.TRANSACTION_PREPARED_TYPE;
                break;
            case 1:
                sysFlag |= MessageSysFlag.TRANSACTION_COMMIT_TYPE;
                message.setPreparedTransactionOffset(random.nextInt(100_000));
                break;
            case 2:
                sysFlag |= MessageSysFlag.TRANSACTION_ROLLBACK_TYPE;
                message.setPreparedTransactionOffset(random.nextInt(100_000));
                break;
            case 3:
                message.setDelayTimeLevel(DELAYS[random.nextInt(DELAYS.length)]);
                break;
            default:
                break;
        }
        // 5.5 numbers messages in further queues that it never puts there, if they are prepared or rolled back.
        boolean isOrdinary = (sysFlag & MessageSysFlag.TRANSACTION_ROLLBACK_TYPE) == 0;
        if (real.config.isEnableMultiDispatch() && isOrdinary && random.nextBoolean()) {
            String[] choices = Version.LIGHT_QUEUES_ONLY ? LIGHT_QUEUES : QUEUES;
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, pick(choices));
        }
        message.setSysFlag(sysFlag);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        Version.rewriteDelayed(message, real.delayLevels);
        check(real.store.putMessage(message));
    }

    private void putBatch(int count) {
        List<Message> elements = new ArrayList<>();
        String topic = pick(TOPICS);
        for (int i = 0; i < count; i++, made++) {
            Message element = new Message(topic, body());
            element.setFlag(random.nextInt(4));
            addProperties(element);
            MessageAccessor.putProperty(element, "placeInBatch", String.valueOf(i));
            elements.add(element);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(topic);
        batch.setQueueId(random.nextInt(4));
        batch.setBody(MessageDecoder.encodeMessages(elements));
        batch.setBornTimestamp(System.currentTimeMillis());
        addHosts(batch);
        // 4.9 appends these to every element; 5.5 does not.
        MessageAccessor.putProperty(batch, MessageConst.PROPERTY_CLUSTER, "DefaultCluster");
        check(real.store.putMessages(batch));
    }

    private void addProperties(Message message) {
        Map<String, String> properties = new HashMap<>();
        String tags = pick(TAGS);
        if (tags != null) {
            properties.put(MessageConst.PROPERTY_TAGS, tags);
        }
        StringBuilder keys = new StringBuilder();
        for (int i = random.nextInt(4); i > 0; i--) {
            keys.append(keys.length() == 0 ? "" : " ");
            keys.append(random.nextBoolean() ? pick(KEYS) : "order-" + random.nextInt(200));
        }
        if (keys.length() > 0) {
            properties.put(MessageConst.PROPERTY_KEYS, keys.toString());
        }
        if (random.nextInt(12) != 0) {
            properties.put(
                MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
                String.format("7F0000010A2B18B4AAC2%012X", random.nextLong() & 0xFFFFFFFFFFFFL));
        }
        if (random.nextInt(3) == 0) {
            properties.put("region", "\u6771\u4eac \ud83c\udf0d " + random.nextInt(9));
            properties.put("empty", "");
        }
        if (random.nextInt(6) == 0) {
            properties.put(MessageConst.PROPERTY_WAIT_STORE_MSG_OK, "true");
        }
        MessageAccessor.setProperties(message, properties);
    }

    private void addHosts(MessageExt message) {
        message.setBornHost(random.nextInt(4) == 0 ? V6_BORN : V4_BORN);
        message.setStoreHost(random.nextInt(6) == 0 ? V6_STORE : V4_STORE);
        // The broker's front end sets these bits from the addresses.
        if (message.getBornHost() == V6_BORN) {
            message.setBornHostV6Flag();
        }
        if (message.getStoreHost() == V6_STORE) {
            message.setStoreHostAddressV6Flag();
        }
    }

    private byte[] body() {
        int kind = random.nextInt(30);
        if (kind == 0) {
            return new byte[0];
        }
        if (kind < 6) {
            byte[] body = new byte[random.nextInt(3000)];
            random.nextBytes(body);
            return body;
        }
        StringBuilder text = new StringBuilder();
        for (int i = random.nextInt(400); i >= 0; i--) {
            text.append(pick(WORDS)).append(' ');
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    private <T> T pick(T[] choices) {
        return choices[random.nextInt(choices.length)];
    }

    private static void check(PutMessageResult result) {
        if (result == null || !result.isOk()) {
            throw new IllegalStateException("put refused: " + result);
        }
    }

    private static InetSocketAddress address(int port, int... parts) {
        byte[] bytes = new byte[parts.length];
        for (int i = 0; i < parts.length; i++) {
            bytes[i] = (byte) parts[i];
        }
        try {
            return new InetSocketAddress(InetAddress.getByAddress(bytes), port);
        } catch (UnknownHostException impossible) {
            throw new IllegalArgumentException(impossible);
        }
    }

    private static final InetSocketAddress V4_BORN = address(51234, 192, 168, 3, 200);
    private static final InetSocketAddress V4_STORE = address(10911, 127, 0, 0, 1);
    private static final InetSocketAddress V6_BORN =
        address(4721, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xd0, 0x06, 0x6a, 0x44, 0xa0, 0x0b, 0xff, 0xe2);
    private static final InetSocketAddress V6_STORE =
        address(10911, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
}
