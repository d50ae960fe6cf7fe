import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A process that uses Redisson's locks as a test commands. Its arguments are the address of a Redis and the lease in
 * milliseconds. It reads lines "THREAD COMMAND LOCK ..." and runs each on the thread of that name; when it is done it
 * prints "THREAD COMMAND MICROSECONDS", the time being that of the wall clock, or "THREAD error REASON".
 */
public class Peer {
    private static RedissonClient redisson;

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(arguments[1]));
        config.setThreads(2).setNettyThreads(2);
        config.useSingleServer().setAddress(arguments[0]).setConnectionMinimumIdleSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1);
        redisson = Redisson.create(config);
        Map<String, ExecutorService> threads = new HashMap<>();
        print("main ready " + now());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            threads.computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor()).submit(() -> run(words));
        }
        System.exit(0); // the test has ended
    }

    private static void run(String[] words) {
        try {
            print(words[0] + " " + words[1] + " " + done(words));
        } catch (Exception e) {
            print(words[0] + " error " + e);
        }
    }

    /** Does what a line says, and returns when: a lock is taken at the end of the call, and given up at its beginning. */
    private static long done(String[] words) {
        RLock lock = redisson.getLock(words[2]);
        switch (words[1]) {
            case "lock":
                lock.lock();
                return now();
            case "unlock":
                long began = now();
                lock.unlock();
                return began;
            case "force":
                lock.forceUnlock();
                return now();
            case "add":
                for (int i = Integer.parseInt(words[4]); i > 0; i--) {
                    add(lock, redisson.getBucket(words[3], StringCodec.INSTANCE));
                }
                return now();
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    /** Adds one in two steps, which only the lock keeps together. */
    private static void add(RLock lock, RBucket<String> counter) {
        lock.lock();
        try {
            String value = counter.get();
            counter.set(String.valueOf(value == null ? 1 : Long.parseLong(value) + 1));
        } finally {
            lock.unlock();
        }
    }

    private static long now() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
