import java.io.File;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import kafka.server.checkpoints.OffsetCheckpointFile;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.jdk.javaapi.OptionConverters;

/** What differs in the 3.x line. */
final class Version {
    static final boolean WRITES_LEGACY = true;
    private static final int NEVER_MS = Integer.MAX_VALUE;
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(1);
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    static {
        SCHEDULER.startup();
    }

    private Version() {
    }

    static Partition open(File folder, LogConfig config, long start, long recoveryPoint, boolean clean) {
        UnifiedLog log = UnifiedLog.apply(
            folder, config, start, recoveryPoint, SCHEDULER, new BrokerTopicStats(false), Time.SYSTEM, NEVER_MS,
            new ProducerStateManagerConfig(NEVER_MS, false), NEVER_MS, FAILURES, clean, Option.empty(), true,
            new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        return new Of(log);
    }

    static Map<TopicPartition, Long> readOffsets(File file) {
        Map<TopicPartition, Long> offsets = new HashMap<>();
        if (file.exists()) {
            CollectionConverters.asJava(new OffsetCheckpointFile(file, FAILURES).read())
                .forEach((name, offset) -> offsets.put(name, (Long) offset));
        }
        return offsets;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void writeOffsets(File file, Map<TopicPartition, Long> offsets) {
        new OffsetCheckpointFile(file, FAILURES).write((scala.collection.Map) CollectionConverters.asScala(offsets));
    }

    static void dumpTool(String[] arguments) {
        kafka.tools.DumpLogSegments.main(arguments);
    }

    static List<Object> internalTopics() {
        return InternalTopics.all();
    }

    static int epoch(EpochEntry entry) {
        return entry.epoch;
    }

    static long startOffset(EpochEntry entry) {
        return entry.startOffset;
    }

    static int lastSequence(ProducerStateEntry entry) {
        return entry.lastSeq();
    }

    private static final class Of implements Partition {
        private final UnifiedLog log;

        Of(UnifiedLog log) {
            this.log = log;
        }

        @Override
        public long startOffset() {
            return log.logStartOffset();
        }

        @Override
        public long endOffset() {
            return log.logEndOffset();
        }

        @Override
        public long lastStableOffset() {
            return log.lastStableOffset();
        }

        @Override
        public Collection<LogSegment> segments() {
            return log.logSegments();
        }

        @Override
        public List<EpochEntry> epochs() {
            return log.leaderEpochCache().isEmpty()
                ? Collections.emptyList() : log.leaderEpochCache().get().epochEntries();
        }

        @Override
        public FetchDataInfo read(long offset, int bytes) {
            return log.read(offset, bytes, FetchIsolation.LOG_END, true);
        }

        @Override
        public Optional<FileRecords.TimestampAndOffset> byTimestamp(long timestamp) {
            return OptionConverters.toJava(log.fetchOffsetByTimestamp(timestamp, Option.empty()));
        }

        @Override
        public void append(MemoryRecords records, int epoch, boolean marker) {
            log.appendAsLeader(
                records, epoch, marker ? AppendOrigin.COORDINATOR : AppendOrigin.CLIENT,
                log.appendAsLeader$default$4(), RequestLocal.NoCaching(), log.appendAsLeader$default$6());
        }

        @Override
        public void replicate(MemoryRecords records, int epoch) {
            log.appendAsFollower(records, epoch);
        }

        @Override
        public void roll() {
            log.roll(Option.empty());
        }

        @Override
        public void settle() {
            log.updateHighWatermark(log.logEndOffset());
        }

        @Override
        public void flush() {
            log.flush(true);
        }

        @Override
        public void close() {
            log.close();
        }
    }
}
