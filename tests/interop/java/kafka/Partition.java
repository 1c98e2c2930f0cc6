import java.io.IOException;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogSegment;

/** What the harness asks of Kafka's own log of one partition; each line of releases has its own adapter. */
interface Partition {
    long startOffset();

    long endOffset();

    long lastStableOffset();

    Collection<LogSegment> segments();

    List<EpochEntry> epochs();

    FetchDataInfo read(long offset, int bytes) throws IOException;

    Optional<FileRecords.TimestampAndOffset> byTimestamp(long timestamp);

    /** Gives offsets and the epoch, as the leader of the partition; a marker comes from the coordinator. */
    void append(MemoryRecords records, int epoch, boolean marker) throws IOException;

    /** Takes the bytes with the offsets that they bring. */
    void replicate(MemoryRecords records, int epoch) throws IOException;

    void roll() throws IOException;

    /** Everything that was appended counts as replicated. */
    void settle() throws IOException;

    void flush();

    void close();
}
