import com.spotify.sparkey.CompressionType;
import com.spotify.sparkey.Sparkey;
import com.spotify.sparkey.SparkeyReader;
import com.spotify.sparkey.SparkeyWriter;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Sparkey beside the others: the same flat set, the same queries in the same stretches, the same JSON
 * as `bench build` and `bench read`. Single-threaded readers (its fastest), one a thread; no
 * compression; the hash in memory while it is written. Asking for every query once both checks the
 * answers and lets the compiler of the JVM do its work before anything is timed.
 */
public final class SparkeyBench {
    private static final int INDEPENDENT = 1 << 19;
    private static final int DEPENDENT = 1 << 17;
    private static final int LATENCY = 1 << 17;
    private static final int BATCHED = 1 << 17;
    private static final int PER_THREAD = 1 << 16;

    /** Written by one thread, read by none: keeps the compiler from dropping the work. */
    private static volatile long sink;
    private static volatile long none;

    public static void main(String[] args) throws Exception {
        if (args.length == 4 && args[0].equals("build")) {
            build(args[1], new File(args[2]), Long.parseLong(args[3]));
        } else if (args.length == 3 && args[0].equals("read")) {
            read(args[1], new File(args[2]));
        } else {
            System.err.println("usage: build DATA STORE RECORDS | read DATA STORE");
            System.exit(2);
        }
    }

    private static long field(String data, String name) throws IOException {
        String text = Files.readString(Path.of(data + ".json"));
        Matcher matcher = Pattern.compile("\"" + name + "\":(\\d+)").matcher(text);
        if (!matcher.find()) {
            throw new IOException("no " + name + " in " + data + ".json");
        }
        return Long.parseUnsignedLong(matcher.group(1));
    }

    private static final java.lang.management.ThreadMXBean THREADS =
            java.lang.management.ManagementFactory.getThreadMXBean();

    /** Processor time of this thread, as in the other contenders' loops. */
    private static long threadTime() {
        return THREADS.getCurrentThreadCpuTime();
    }

    private static void build(String data, File store, long atMost) throws IOException {
        long records = Math.min(atMost, field(data, "records"));
        byte[] key = new byte[(int) field(data, "key_bytes")];
        byte[] value = new byte[(int) field(data, "value_bytes")];
        Files.createDirectories(store.toPath());
        File index = new File(store, "store.spi");
        long start = System.nanoTime();
        try (DataInputStream in = new DataInputStream(
                     new BufferedInputStream(new FileInputStream(data + ".flat"), 1 << 20));
                SparkeyWriter writer = Sparkey.createNew(index, CompressionType.NONE, 0)) {
            writer.setFsync(true);
            writer.setConstructionMethod(SparkeyWriter.ConstructionMethod.IN_MEMORY);
            for (long i = 0; i < records; i++) {
                in.readFully(key);
                in.readFully(value);
                writer.put(key, value);
            }
            writer.writeHash();
        } catch (EOFException e) {
            throw new IOException(data + ".flat is cut short: generate it again", e);
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        long bytes = index.length() + Sparkey.getLogFile(index).length();
        System.out.printf(Locale.ROOT,
                "{\"peer\":\"sparkey\",\"records\":%d,\"seconds\":%.4f,\"stages\":{},\"file_bytes\":%d,"
                        + "\"payload_bytes\":%d,\"peak_rss_bytes\":%d}%n",
                records, seconds, bytes, records * (key.length + value.length), status("VmHWM"));
    }

    private static long status(String name) throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith(name + ":")) {
                return Long.parseLong(line.replaceAll("\\D+", "")) * 1024;
            }
        }
        return 0;
    }

    /** What is added up of each answer: its first and last eight bytes as little-endian words. */
    private static long check(byte[] value) {
        return word(value, 0) + word(value, value.length - 8);
    }

    private static long word(byte[] bytes, int at) {
        return (long) WORD.get(bytes, at);
    }

    private static final java.lang.invoke.VarHandle WORD =
            java.lang.invoke.MethodHandles.byteArrayViewVarHandle(
                    long[].class, java.nio.ByteOrder.LITTLE_ENDIAN);

    private static void read(String data, File store) throws Exception {
        int width = (int) field(data, "key_bytes");
        byte[] queries = Files.readAllBytes(Path.of(data + ".queries"));
        byte[] misses = Files.readAllBytes(Path.of(data + ".misses"));
        File index = new File(store, "store.spi");
        long opening = System.nanoTime();
        SparkeyReader reader = Sparkey.openSingleThreadedReader(index);
        double openSeconds = (System.nanoTime() - opening) / 1e9;
        checkAll(reader, queries, width, field(data, "expected"));
        int from = 0;
        double independent = timed(reader, queries, width, from, INDEPENDENT);
        from += INDEPENDENT;
        double dependent = dependent(reader, queries, width, from, DEPENDENT);
        from += DEPENDENT;
        int[] times = latency(reader, queries, width, from, LATENCY);
        from += LATENCY;
        double batches = timed(reader, queries, width, from, BATCHED);
        from += BATCHED;
        double miss = missing(reader, misses, width);
        double both = twoThreads(index, queries, width, from);
        System.out.printf(Locale.ROOT,
                "{\"independent_ns\":%.2f,\"dependent_ns\":%.2f,\"p50_ns\":%d,\"p99_ns\":%d,\"p999_ns\":%d,"
                        + "\"batch16_ns\":%.2f,\"miss_ns\":%.2f,\"two_threads_mps\":%.4f,\"open_seconds\":%.5f,"
                        + "\"index_bytes\":%d,\"file_bytes\":%d,\"records\":%d,\"anonymous_bytes\":%d}%n",
                independent, dependent, times[times.length / 2], times[times.length / 100 * 99],
                times[times.length / 1000 * 999], batches, miss, both, openSeconds, index.length(),
                index.length() + Sparkey.getLogFile(index).length(), field(data, "records"), status("RssAnon"));
    }

    private static void checkAll(SparkeyReader reader, byte[] queries, int width, long expected) throws IOException {
        long sum = 0;
        byte[] key = new byte[width];
        for (int at = 0; at < queries.length; at += width) {
            System.arraycopy(queries, at, key, 0, width);
            sum += check(reader.getAsByteArray(key));
        }
        if (sum != expected) {
            throw new IOException("wrong answers: checksum " + sum + ", expected " + expected);
        }
    }

    private static double timed(SparkeyReader reader, byte[] queries, int width, int from, int gets)
            throws IOException {
        long sum = 0;
        byte[] key = new byte[width];
        long start = threadTime();
        for (int index = from; index < from + gets; index++) {
            System.arraycopy(queries, index * width, key, 0, width);
            sum += check(reader.getAsByteArray(key));
        }
        double time = (double) (threadTime() - start) / gets;
        sink = sum;
        return time;
    }

    private static double dependent(SparkeyReader reader, byte[] queries, int width, int from, int gets)
            throws IOException {
        long last = 0;
        long zero = none;
        byte[] key = new byte[width];
        long start = threadTime();
        for (int index = from; index < from + gets; index++) {
            System.arraycopy(queries, (index + (int) (last & zero)) * width, key, 0, width);
            last = check(reader.getAsByteArray(key));
        }
        double time = (double) (threadTime() - start) / gets;
        sink = last;
        return time;
    }

    private static int[] latency(SparkeyReader reader, byte[] queries, int width, int from, int gets)
            throws IOException {
        int[] times = new int[gets];
        long sum = 0;
        byte[] key = new byte[width];
        for (int i = 0; i < gets; i++) {
            System.arraycopy(queries, (from + i) * width, key, 0, width);
            long start = System.nanoTime();
            sum += check(reader.getAsByteArray(key));
            times[i] = (int) (System.nanoTime() - start);
        }
        sink = sum;
        Arrays.sort(times);
        return times;
    }

    private static double missing(SparkeyReader reader, byte[] misses, int width) throws IOException {
        int gets = misses.length / width / 2;
        int found = 0;
        byte[] key = new byte[width];
        long start = 0;
        // The first half warms, the second is timed.
        for (int index = 0; index < 2 * gets; index++) {
            if (index == gets) {
                start = threadTime();
            }
            System.arraycopy(misses, index * width, key, 0, width);
            found += reader.getAsByteArray(key) == null ? 0 : 1;
        }
        if (found > 0) {
            throw new IOException(found + " keys found that are in no record");
        }
        return (double) (threadTime() - start) / gets;
    }

    private static double twoThreads(File index, byte[] queries, int width, int from) throws Exception {
        Thread[] threads = new Thread[2];
        SparkeyReader[] readers = new SparkeyReader[2];
        for (int t = 0; t < 2; t++) {
            readers[t] = Sparkey.openSingleThreadedReader(index);
            SparkeyReader reader = readers[t];
            int first = from + t * PER_THREAD;
            threads[t] = new Thread(() -> {
                try {
                    timed(reader, queries, width, first, PER_THREAD);
                } catch (IOException e) {
                    throw new IllegalStateException(e);
                }
            });
        }
        long start = System.nanoTime();
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return 2.0 * PER_THREAD / ((System.nanoTime() - start) / 1e3);
    }
}
