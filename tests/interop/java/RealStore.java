import java.io.File;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Drives the real broker store from the command line. Options are {@code name=value}: names of the store's own
 * configuration, and those named below. The last line on standard output is a JSON object.
 *
 * <pre>
 *   read DIR OUT [ask=FILE]          open DIR (hand in a copy: it is recovered and written to), dump all into OUT
 *   recover DIR                      load, start, wait for dispatch, shut down
 *   write DIR SEED COUNT             put COUNT mixed messages, shut down
 *   write-crash DIR SEED COUNT       the same, then stop the process without shutting down
 *   bench DIR WORK                   work of {@link Bench}, with its options named {@code bench.count=} and so on
 * </pre>
 *
 * Exit code 3: the store refused to load.
 */
public final class RealStore {
    static final int REFUSED = 3;

    final MessageStoreConfig config;
    final DefaultMessageStore store;
    final int delayLevels;

    private RealStore(Path directory, Map<String, String> options) throws Exception {
        config = config(directory, options);
        delayLevels = config.getMessageDelayLevel().split(" ").length;
        store = Version.open(config, new BrokerStatsManager("interop", false));
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable failure) {
            // The store's own threads would keep the process alive.
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        List<String> words = new ArrayList<>();
        Map<String, String> options = new LinkedHashMap<>();
        Map<String, String> benchOptions = new LinkedHashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            if (equals > 0 && words.size() >= 2) {
                String name = argument.substring(0, equals);
                (name.startsWith("bench.") ? benchOptions : options)
                    .put(name.replace("bench.", ""), argument.substring(equals + 1));
            } else {
                words.add(argument);
            }
        }
        String ask = options.remove("ask");
        long begin = System.nanoTime();
        RealStore real = new RealStore(Paths.get(words.get(1)), options);
        real.start();
        double openSeconds = (System.nanoTime() - begin) / 1e9;
        Map<String, Object> summary = new LinkedHashMap<>();
        boolean shutDown = true;
        switch (words.get(0)) {
            case "read":
                summary = new Dump(real, Paths.get(words.get(1)), ask == null ? null : Paths.get(ask))
                    .write(Paths.get(words.get(2)));
                shutDown = false;
                break;
            case "recover":
                break;
            case "write":
            case "write-crash":
                new Workload(real, Long.parseLong(words.get(2))).put(Integer.parseInt(words.get(3)));
                shutDown = words.get(0).equals("write");
                break;
            case "bench":
                summary = new Bench(real, benchOptions).run(words.get(2));
                // What was put is thrown away, and shutting down takes seconds.
                shutDown = !words.get(2).equals("put");
                break;
            default:
                throw new IllegalArgumentException("unknown command " + words.get(0));
        }
        summary.put("openSeconds", openSeconds);
        summary.put("maxPhyOffset", real.store.getMaxPhyOffset());
        if (shutDown) {
            real.waitForDispatch();
            real.store.shutdown();
        }
        System.out.println(Json.text(summary));
        System.out.flush();
        // Without halt the store's own threads would go on, and a store that was not shut down would be left less abruptly.
        Runtime.getRuntime().halt(0);
    }

    private void start() throws Exception {
        if (!store.load()) {
            System.out.println("{\"refused\":true}");
            System.out.flush();
            Runtime.getRuntime().halt(REFUSED);
        }
        store.start();
        waitForDispatch();
    }

    void waitForDispatch() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(5);
        }
    }

    private static MessageStoreConfig config(Path directory, Map<String, String> options) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory.toString());
        config.setStorePathCommitLog(directory + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog(1048576);
        config.setMappedFileSizeConsumeQueue(2000);
        config.setMaxHashSlotNum(1000);
        config.setMaxIndexNum(4000);
        config.setHaListenPort(0);
        for (Map.Entry<String, String> option : options.entrySet()) {
            set(config, option.getKey(), option.getValue());
        }
        return config;
    }

    private static void set(MessageStoreConfig config, String name, String value) throws Exception {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : config.getClass().getMethods()) {
            if (!method.getName().equals(setter) || method.getParameterCount() != 1) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            if (type == int.class) {
                method.invoke(config, Integer.parseInt(value));
            } else if (type == long.class) {
                method.invoke(config, Long.parseLong(value));
            } else if (type == boolean.class) {
                method.invoke(config, Boolean.parseBoolean(value));
            } else if (type == String.class) {
                method.invoke(config, value);
            } else {
                continue;
            }
            return;
        }
        throw new IllegalArgumentException("the store has no setting " + name);
    }
}
