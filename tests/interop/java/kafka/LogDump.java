import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TimestampOffset;

/** Everything Kafka's own log says of the partitions that it loaded, one JSON object a line. */
final class LogDump {
    private static final int LOOKUPS = 40;

    private final RealKafka real;
    private BufferedWriter out;

    LogDump(RealKafka real) {
        this.real = real;
    }

    void write(Path path) throws Exception {
        out = Files.newBufferedWriter(path);
        for (Map.Entry<TopicPartition, Partition> entry : real.partitions.entrySet()) {
            partition(entry.getKey().toString(), entry.getValue());
        }
        out.close();
    }

    private void partition(String dir, Partition log) throws Exception {
        Map<String, Object> line = line("log", dir);
        line.put("logStartOffset", log.startOffset());
        line.put("logEndOffset", log.endOffset());
        line.put("lastStableOffset", log.lastStableOffset());
        List<Object> segments = new ArrayList<>();
        log.segments().forEach(segment -> segments.add(segment.baseOffset()));
        line.put("segments", segments);
        List<Object> epochs = new ArrayList<>();
        for (EpochEntry epoch : log.epochs()) {
            Map<String, Object> member = new LinkedHashMap<>();
            member.put("epoch", Version.epoch(epoch));
            member.put("startOffset", Version.startOffset(epoch));
            epochs.add(member);
        }
        line.put("leaderEpochs", epochs);
        put(line);
        TreeSet<Long> offsets = new TreeSet<>();
        TreeSet<Long> times = new TreeSet<>(Arrays.asList(0L));
        for (LogSegment segment : log.segments()) {
            segment(dir, segment);
            batches(dir, segment, offsets, times);
        }
        for (long target : some(offsets)) {
            if (target >= log.startOffset() && target < log.endOffset()) {
                offset(dir, log, target);
            }
        }
        for (long time : some(times)) {
            for (long target : new long[] {time - 1, time, time + 1}) {
                if (target >= 0) {
                    time("timestampLookup", dir, log, target);
                }
            }
        }
        time("maxTimestampLookup", dir, log, -3);
        snapshots(dir);
    }

    private static List<Long> some(TreeSet<Long> values) {
        List<Long> all = new ArrayList<>(values);
        List<Long> chosen = new ArrayList<>();
        int step = Math.max(1, all.size() / LOOKUPS);
        for (int i = 0; i < all.size(); i += step) {
            chosen.add(all.get(i));
        }
        return chosen;
    }

    private void segment(String dir, LogSegment segment) throws IOException {
        segment.sanityCheck(false);
        segment.offsetIndex().sanityCheck();
        segment.timeIndex().sanityCheck();
        segment.txnIndex().sanityCheck();
        Map<String, Object> line = line("segment", dir);
        line.put("baseOffset", segment.baseOffset());
        line.put("sizeBytes", segment.size());
        line.put("maxTimestamp", segment.maxTimestampSoFar());
        List<Object> offsets = new ArrayList<>();
        for (int i = 0; i < segment.offsetIndex().entries(); i++) {
            OffsetPosition entry = segment.offsetIndex().entry(i);
            offsets.add(Arrays.asList(entry.indexKey(), entry.indexValue()));
        }
        line.put("offsetIndex", offsets);
        List<Object> times = new ArrayList<>();
        for (int i = 0; i < segment.timeIndex().entries(); i++) {
            TimestampOffset entry = segment.timeIndex().entry(i);
            times.add(Arrays.asList(entry.indexKey(), entry.indexValue()));
        }
        line.put("timeIndex", times);
        List<Object> aborted = new ArrayList<>();
        for (AbortedTxn entry : segment.txnIndex().allAbortedTxns()) {
            Map<String, Object> member = new LinkedHashMap<>();
            member.put("version", entry.version());
            member.put("producerId", entry.producerId());
            member.put("firstOffset", entry.firstOffset());
            member.put("lastOffset", entry.lastOffset());
            member.put("lastStableOffset", entry.lastStableOffset());
            aborted.add(member);
        }
        line.put("abortedTxns", aborted);
        put(line);
    }

    private void batches(String dir, LogSegment segment, TreeSet<Long> offsets, TreeSet<Long> times) throws Exception {
        for (FileLogInputStream.FileChannelRecordBatch batch : segment.log().batches()) {
            Map<String, Object> line = line("batch", dir);
            line.put("segment", segment.baseOffset());
            line.put("position", batch.position());
            line.put("sizeInBytes", batch.sizeInBytes());
            line.put("magic", batch.magic());
            line.put("lastOffset", batch.lastOffset());
            line.put("codec", batch.compressionType().name);
            line.put("timestampType", batch.timestampType().toString());
            line.put("maxTimestamp", batch.maxTimestamp());
            line.put("valid", batch.isValid());
            if (batch.magic() >= 2) {
                line.put("baseOffset", batch.baseOffset());
                line.put("crc", batch.checksum());
                line.put("leaderEpoch", batch.partitionLeaderEpoch());
                line.put("producerId", batch.producerId());
                line.put("producerEpoch", batch.producerEpoch());
                line.put("baseSequence", batch.baseSequence());
                line.put("transactional", batch.isTransactional());
                line.put("control", batch.isControlBatch());
                line.put("count", batch.countOrNull());
                line.put("deleteHorizonMs",
                    batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null);
            }
            put(line);
            offsets.add(batch.baseOffset());
            offsets.add(batch.lastOffset());
            times.add(batch.maxTimestamp());
            records(dir, segment, batch);
        }
    }

    private void records(String dir, LogSegment segment, FileLogInputStream.FileChannelRecordBatch batch)
        throws Exception {
        // The name of the record's type means another one, too.
        for (var record : batch) {
            Map<String, Object> line = line("record", dir);
            line.put("segment", segment.baseOffset());
            line.put("batchPosition", batch.position());
            line.put("offset", record.offset());
            line.put("timestamp", record.timestamp());
            line.put("key", base64(record.key()));
            line.put("value", base64(record.value()));
            if (batch.magic() >= 2) {
                line.put("sequence", record.sequence());
                List<Object> headers = new ArrayList<>();
                for (Header header : record.headers()) {
                    byte[] value = header.value();
                    headers.add(Arrays.asList(
                        header.key(), value == null ? null : Base64.getEncoder().encodeToString(value)));
                }
                line.put("headers", headers);
            }
            if (batch.isControlBatch()) {
                ControlRecordType type = ControlRecordType.parse(record.key());
                line.put("controlType", type.name());
                if (type == ControlRecordType.COMMIT || type == ControlRecordType.ABORT) {
                    line.put("coordinatorEpoch", EndTransactionMarker.deserialize(record).coordinatorEpoch());
                }
            }
            put(line);
        }
    }

    private void offset(String dir, Partition log, long target) throws IOException {
        FetchDataInfo found = log.read(target, 1);
        Map<String, Object> line = line("offsetLookup", dir);
        line.put("target", target);
        line.put("segment", found.fetchOffsetMetadata.segmentBaseOffset);
        line.put("position", found.fetchOffsetMetadata.relativePositionInSegment);
        line.put("foundBatchLastOffset", found.records.batches().iterator().next().lastOffset());
        put(line);
    }

    private void time(String kind, String dir, Partition log, long target) throws IOException {
        Optional<FileRecords.TimestampAndOffset> found = log.byTimestamp(target);
        Map<String, Object> line = line(kind, dir);
        if (target >= 0) {
            line.put("target", target);
        }
        line.put("offset", found.isPresent() ? found.get().offset : null);
        if (found.isPresent()) {
            line.put("timestamp", found.get().timestamp);
        }
        put(line);
    }

    private void snapshots(String dir) throws IOException {
        File[] files = new File(real.directory, dir).listFiles((parent, name) -> name.endsWith(".snapshot"));
        Arrays.sort(files);
        for (File file : files) {
            Map<String, Object> line = line("producerSnapshot", dir);
            line.put("file", file.getName());
            List<Object> producers = new ArrayList<>();
            for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
                Map<String, Object> member = new LinkedHashMap<>();
                member.put("producerId", entry.producerId());
                member.put("producerEpoch", entry.producerEpoch());
                member.put("coordinatorEpoch", entry.coordinatorEpoch());
                member.put("lastTimestamp", entry.lastTimestamp());
                member.put("lastSeq", Version.lastSequence(entry));
                member.put("lastDataOffset", entry.lastDataOffset());
                member.put("currentTxnFirstOffset",
                    entry.currentTxnFirstOffset().isPresent() ? entry.currentTxnFirstOffset().getAsLong() : null);
                producers.add(member);
            }
            line.put("producers", producers);
            put(line);
        }
    }

    private static String base64(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }

    private static Map<String, Object> line(String kind, String dir) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("dir", dir);
        return line;
    }

    private void put(Map<String, Object> line) throws IOException {
        out.write(Json.text(line));
        out.newLine();
    }
}
