import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.storage.internals.log.LogConfig;

/** A repeatable mix of every kind of batch, by Kafka's own builders. */
final class LogWorkload {
    private static final long START = 1_700_000_000_000L;
    private static final String[] NAMES = {"", "a", "trace-id", "名前", "\uD83D\uDE80"};

    private final RealKafka real;
    private final Random chance;
    private long clock;

    LogWorkload(RealKafka real, long seed) {
        this.real = real;
        this.chance = new Random(seed);
        this.clock = START + seed * 10_000_000L;
    }

    void append(int count) throws Exception {
        plain(real.partition("plain", 0), count);
        plain(real.partition("plain.with-dots_and-dashes", 11), count / 4);
        codecs(real.partition("codecs", 0), count);
        Map<String, Object> stamped = new LinkedHashMap<>(real.config.originals());
        stamped.put("message.timestamp.type", "LogAppendTime");
        plain(real.partition("stamped", 0, new LogConfig(stamped)), count / 4);
        transactions(real.partition("txn", 0), count);
        idempotent(real.partition("idempotent", 0), count / 4);
        if (Version.WRITES_LEGACY) {
            legacy(real.partition("legacy", 0), (byte) 0, count / 4);
            legacy(real.partition("legacy", 1), (byte) 1, count / 4);
        }
    }

    private void plain(Partition log, int count) throws Exception {
        for (int done = 0; done < count; ) {
            SimpleRecord[] records = records(1 + chance.nextInt(8), true);
            log.append(MemoryRecords.withRecords(Compression.NONE, records), done * 3 / count, false);
            done += records.length;
        }
        log.settle();
    }

    private void codecs(Partition log, int count) throws Exception {
        for (int done = 0; done < count; ) {
            SimpleRecord[] records = records(1 + chance.nextInt(40), true);
            CompressionType[] types = CompressionType.values();
            CompressionType type = types[chance.nextInt(types.length)];
            log.append(MemoryRecords.withRecords(Compression.of(type).build(), records), 1, false);
            done += records.length;
        }
        log.roll();
        log.append(MemoryRecords.withRecords(Compression.NONE, records(3, true)), 2, false);
        log.settle();
    }

    private void transactions(Partition log, int count) throws Exception {
        int[] sequences = new int[3];
        for (int done = 0; done < count; ) {
            int producer = chance.nextInt(3);
            for (int batch = chance.nextInt(3); batch >= 0; batch--) {
                // Another producer writes between this one's batches now and then.
                int who = chance.nextInt(4) == 0 ? 2 : producer;
                SimpleRecord[] records = records(1 + chance.nextInt(6), false);
                long id = 1000 * (who + 1);
                MemoryRecords made = who == 2
                    ? MemoryRecords.withIdempotentRecords(Compression.NONE, id, (short) 0, sequences[who], records)
                    : MemoryRecords.withTransactionalRecords(
                        Compression.of(CompressionType.LZ4).build(), id, (short) 0, sequences[who], records);
                log.append(made, 0, false);
                sequences[who] += records.length;
                done += records.length;
            }
            if (producer != 2) {
                ControlRecordType type = chance.nextBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
                log.append(
                    MemoryRecords.withEndTransactionMarker(
                        clock, 1000 * (producer + 1), (short) 0, new EndTransactionMarker(type, 7)),
                    0, true);
            }
            log.settle();
        }
        // One is left open.
        log.append(
            MemoryRecords.withTransactionalRecords(
                Compression.NONE, 1000, (short) 0, sequences[0], records(2, false)), 0, false);
        log.settle();
    }

    private void idempotent(Partition log, int count) throws Exception {
        int sequence = 0;
        for (int done = 0; done < count; ) {
            SimpleRecord[] records = records(1 + chance.nextInt(5), false);
            log.append(
                MemoryRecords.withIdempotentRecords(Compression.NONE, 77, (short) 3, sequence, records), 0, false);
            sequence += records.length;
            done += records.length;
        }
        log.settle();
    }

    /** Leaders write magic 2 alone; a replica takes what it is sent. */
    private void legacy(Partition log, byte magic, int count) throws Exception {
        for (int done = 0; done < count; ) {
            SimpleRecord[] records = records(1 + chance.nextInt(5), false);
            CompressionType type = CompressionType.forId(chance.nextInt(4));
            MemoryRecords made = MemoryRecords.withRecords(
                magic, log.endOffset(), Compression.of(type).build(), TimestampType.CREATE_TIME, records);
            log.replicate(made, -1);
            done += records.length;
        }
        log.settle();
    }

    private SimpleRecord[] records(int count, boolean headers) {
        SimpleRecord[] records = new SimpleRecord[count];
        for (int i = 0; i < count; i++) {
            clock += chance.nextInt(500);
            long timestamp = clock - chance.nextInt(2000);
            byte[] key = chance.nextInt(4) == 0 ? null : text(chance.nextInt(3));
            byte[] value = chance.nextInt(10) == 0 ? null : text(chance.nextInt(60));
            records[i] = new SimpleRecord(timestamp, key, value, headers ? headers() : new Header[0]);
        }
        return records;
    }

    private Header[] headers() {
        List<Header> headers = new ArrayList<>();
        for (int i = chance.nextInt(4) - 1; i > 0; i--) {
            byte[] value = chance.nextInt(3) == 0 ? null : text(chance.nextInt(4));
            headers.add(new RecordHeader(NAMES[chance.nextInt(NAMES.length)], value));
        }
        return headers.toArray(new Header[0]);
    }

    private byte[] text(int words) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < words; i++) {
            text.append('w').append(chance.nextInt(500)).append(' ');
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }
}
