import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValueJsonConverter;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValueJsonConverter;

/** Keys and values of the broker's own topics in every version that this release can write. */
final class InternalTopics {
    private final List<Object> records = new ArrayList<>();

    static List<Object> all() {
        InternalTopics made = new InternalTopics();
        made.offsets();
        made.groups();
        made.transactions();
        return made.records;
    }

    private void offsets() {
        ApiMessage key = new OffsetCommitKey().setGroup("größe").setTopic("orders").setPartition(7);
        for (short version = 0; version <= OffsetCommitValue.HIGHEST_SUPPORTED_VERSION; version++) {
            OffsetCommitValue value = new OffsetCommitValue()
                .setOffset(1L << 40).setMetadata("note").setCommitTimestamp(1_700_000_000_123L);
            if (version == 1) {
                value.setExpireTimestamp(1_700_000_099_000L);
            }
            if (version >= 3) {
                value.setLeaderEpoch(5);
            }
            add("__consumer_offsets", key, (short) Math.min(version, 1), value, version,
                OffsetCommitValueJsonConverter.write(value, version));
        }
    }

    private void groups() {
        ApiMessage key = new GroupMetadataKey().setGroup("g");
        for (short version = 0; version <= GroupMetadataValue.HIGHEST_SUPPORTED_VERSION; version++) {
            GroupMetadataValue.MemberMetadata member = new GroupMetadataValue.MemberMetadata()
                .setMemberId("m-1").setClientId("c").setClientHost("/10.0.0.1").setSessionTimeout(30000)
                .setSubscription(new byte[] {1, 2, 3}).setAssignment(new byte[0]);
            if (version >= 1) {
                member.setRebalanceTimeout(60000);
            }
            GroupMetadataValue value = new GroupMetadataValue()
                .setProtocolType("consumer").setGeneration(3).setProtocol(version == 0 ? null : "range")
                .setLeader(null).setMembers(Arrays.asList(member, member.duplicate()));
            if (version >= 2) {
                value.setCurrentStateTimestamp(1_700_000_000_456L);
            }
            add("__consumer_offsets", key, (short) 2, value, version,
                GroupMetadataValueJsonConverter.write(value, version));
        }
    }

    private void transactions() {
        ApiMessage key = new TransactionLogKey().setTransactionalId("tx-1");
        for (short version = 0; version <= TransactionLogValue.HIGHEST_SUPPORTED_VERSION; version++) {
            for (byte status = 0; status < 8; status++) {
                TransactionLogValue value = new TransactionLogValue()
                    .setProducerId(9000).setProducerEpoch((short) 2).setTransactionTimeoutMs(60000)
                    .setTransactionStatus(status)
                    .setTransactionPartitions(status == 0 ? null : Arrays.asList(
                        new TransactionLogValue.PartitionsSchema()
                            .setTopic("orders").setPartitionIds(Arrays.asList(0, 4, 9))))
                    .setTransactionLastUpdateTimestampMs(1_700_000_001_000L)
                    .setTransactionStartTimestampMs(1_700_000_000_000L);
                add("__transaction_state", key, (short) 0, value, version,
                    TransactionLogValueJsonConverter.write(value, version));
            }
        }
    }

    private void add(String topic, ApiMessage key, short keyVersion, ApiMessage value, short version, Object json) {
        Map<String, Object> record = new LinkedHashMap<>();
        record.put("topic", topic);
        record.put("key", base64(MessageUtil.toVersionPrefixedBytes(keyVersion, key)));
        record.put("value", base64(MessageUtil.toVersionPrefixedBytes(version, value)));
        record.put("version", version);
        record.put("json", json.toString());
        records.add(record);
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
