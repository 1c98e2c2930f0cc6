import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Drives Kafka's own log classes from the command line. Options are {@code name=value}: names of a topic's
 * configuration. The last line on standard output is a JSON object.
 *
 * <pre>
 *   read DIR OUT            load every partition of the data directory DIR (hand in a copy), dump all into OUT, close
 *   recover DIR             load every partition, close
 *   write DIR SEED COUNT    append batches of every kind to COUNT-record topics, close
 *   write-crash DIR SEED COUNT  the same, then stop the process without closing
 *   internal-topics         keys and values of the broker's own topics, and what they say
 *   dump FILE...            what Kafka's dump tool says of the files, and what it complains of
 * </pre>
 */
public final class RealKafka {
    static final String[] CHECKPOINTS = {"recovery-point-offset-checkpoint", "log-start-offset-checkpoint"};

    final File directory;
    final LogConfig config;
    final boolean clean;
    final Map<TopicPartition, Partition> partitions = new TreeMap<>((a, b) -> a.toString().compareTo(b.toString()));
    private final CleanShutdownFileHandler marker;
    private final Map<TopicPartition, Long> recoveryPoints;
    private final Map<TopicPartition, Long> starts;

    private RealKafka(Path path, Map<String, String> options) throws Exception {
        directory = path.toFile();
        directory.mkdirs();
        config = new LogConfig(options);
        marker = new CleanShutdownFileHandler(directory.getPath());
        clean = marker.exists();
        recoveryPoints = Version.readOffsets(new File(directory, CHECKPOINTS[0]));
        starts = Version.readOffsets(new File(directory, CHECKPOINTS[1]));
        File[] children = directory.listFiles(File::isDirectory);
        for (File child : children == null ? new File[0] : children) {
            int dash = child.getName().lastIndexOf('-');
            if (dash > 0 && child.getName().substring(dash + 1).matches("[0-9]+")) {
                partition(child.getName().substring(0, dash), Integer.parseInt(child.getName().substring(dash + 1)));
            }
        }
        // A broker, too, takes the marker away as soon as it has loaded: from now on a crash is a crash.
        marker.delete();
    }

    /** The log of one partition, loaded or new. */
    Partition partition(String topic, int number) throws Exception {
        return partition(topic, number, config);
    }

    Partition partition(String topic, int number, LogConfig own) throws Exception {
        TopicPartition name = new TopicPartition(topic, number);
        Partition found = partitions.get(name);
        if (found == null) {
            File folder = new File(directory, name.toString());
            folder.mkdirs();
            found = Version.open(
                folder, own, starts.getOrDefault(name, 0L), recoveryPoints.getOrDefault(name, 0L), clean);
            found.settle();
            partitions.put(name, found);
        }
        return found;
    }

    private void close() throws Exception {
        Map<TopicPartition, Long> ends = new LinkedHashMap<>();
        for (Map.Entry<TopicPartition, Partition> entry : partitions.entrySet()) {
            entry.getValue().flush();
            ends.put(entry.getKey(), entry.getValue().endOffset());
            entry.getValue().close();
        }
        Version.writeOffsets(new File(directory, CHECKPOINTS[0]), ends);
        marker.write(1);
    }

    public static void main(String[] arguments) {
        try {
            System.out.println(Json.text(run(arguments)));
            System.out.flush();
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> run(String[] arguments) throws Exception {
        List<String> words = new ArrayList<>();
        Map<String, String> options = new LinkedHashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            if (equals > 0 && words.size() >= 2) {
                options.put(argument.substring(0, equals), argument.substring(equals + 1));
            } else {
                words.add(argument);
            }
        }
        Map<String, Object> summary = new LinkedHashMap<>();
        if (words.get(0).equals("internal-topics")) {
            summary.put("records", Version.internalTopics());
            return summary;
        }
        if (words.get(0).equals("dump")) {
            return dump(words.subList(1, words.size()));
        }
        RealKafka real = new RealKafka(Paths.get(words.get(1)), options);
        summary.put("clean", real.clean);
        switch (words.get(0)) {
            case "read":
                new LogDump(real).write(Paths.get(words.get(2)));
                break;
            case "recover":
                break;
            case "write":
            case "write-crash":
                new LogWorkload(real, Long.parseLong(words.get(2))).append(Integer.parseInt(words.get(3)));
                break;
            default:
                throw new IllegalArgumentException("unknown command " + words.get(0));
        }
        for (Map.Entry<TopicPartition, Partition> entry : real.partitions.entrySet()) {
            summary.put(entry.getKey().toString(), entry.getValue().endOffset());
        }
        if (!words.get(0).equals("write-crash")) {
            real.close();
        }
        return summary;
    }

    private static Map<String, Object> dump(List<String> files) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true, "UTF-8"));
        System.setErr(new PrintStream(complained, true, "UTF-8"));
        try {
            Version.dumpTool(new String[] {"--print-data-log", "--deep-iteration", "--files", String.join(",", files)});
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("output", said.toString("UTF-8"));
        summary.put("complaints", complained.toString("UTF-8"));
        return summary;
    }
}
