import java.io.File;
import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TransactionVersion;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** What differs in the 4.x line. */
final class Version {
    static final boolean WRITES_LEGACY = false;
    private static final int NEVER_MS = Integer.MAX_VALUE;
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(1);
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    static {
        SCHEDULER.startup();
    }

    private Version() {
    }

    static Partition open(File folder, LogConfig config, long start, long recoveryPoint, boolean clean)
        throws IOException {
        return new Of(UnifiedLog.create(
            folder, config, start, recoveryPoint, SCHEDULER, new BrokerTopicStats(false), Time.SYSTEM, NEVER_MS,
            new ProducerStateManagerConfig(NEVER_MS, false), NEVER_MS, FAILURES, clean, Optional.empty(),
            new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER));
    }

    static Map<TopicPartition, Long> readOffsets(File file) throws IOException {
        return file.exists() ? new OffsetCheckpointFile(file, FAILURES).read() : new HashMap<>();
    }

    static void writeOffsets(File file, Map<TopicPartition, Long> offsets) throws IOException {
        new OffsetCheckpointFile(file, FAILURES).write(offsets);
    }

    static void dumpTool(String[] arguments) throws IOException {
        org.apache.kafka.tools.DumpLogSegments.main(arguments);
    }

    static List<Object> internalTopics() {
        return List.of();
    }

    static int epoch(EpochEntry entry) {
        return entry.epoch();
    }

    static long startOffset(EpochEntry entry) {
        return entry.startOffset();
    }

    static int lastSequence(ProducerStateEntry entry) {
        return entry.batchMetadata().stream().reduce((first, second) -> second)
            .map(BatchMetadata::lastSeq).orElse(-1);
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
            return log.leaderEpochCache().epochEntries();
        }

        @Override
        public FetchDataInfo read(long offset, int bytes) throws IOException {
            return log.read(offset, bytes, FetchIsolation.LOG_END, true);
        }

        @Override
        public Optional<FileRecords.TimestampAndOffset> byTimestamp(long timestamp) {
            return log.fetchOffsetByTimestamp(timestamp, Optional.empty()).timestampAndOffsetOpt();
        }

        @Override
        public void append(MemoryRecords records, int epoch, boolean marker) throws IOException {
            log.appendAsLeader(
                records, epoch, marker ? AppendOrigin.COORDINATOR : AppendOrigin.CLIENT, RequestLocal.noCaching(),
                VerificationGuard.SENTINEL, TransactionVersion.TV_1.featureLevel());
        }

        @Override
        public void replicate(MemoryRecords records, int epoch) {
            log.appendAsFollower(records, epoch);
        }

        @Override
        public void roll() throws IOException {
            log.roll();
        }

        @Override
        public void settle() throws IOException {
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
