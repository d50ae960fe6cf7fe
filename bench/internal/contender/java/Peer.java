import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A process that uses Redisson's read-write locks and semaphores as a benchmark commands. Its arguments are the address
 * of a Redis, the lease in milliseconds, a name of its own, and the permits of a semaphore. It reads lines "THREAD COMMAND
 * NAME" and runs each on the thread of that number; when it is done it prints "THREAD ok" or "THREAD error REASON".
 */
public class Peer {
    private static RedissonClient redisson;
    private static long lease;
    private static int permits;

    /** The permit of this thread. */
    private static final ThreadLocal<String> permit = new ThreadLocal<>();

    public static void main(String[] arguments) throws Exception {
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        new Thread(() -> read(lines)).start();
        lease = Long.parseLong(arguments[1]);
        permits = Integer.parseInt(arguments[3]);
        Config config = new Config();
        config.setLockWatchdogTimeout(lease);
        config.useSingleServer().setAddress(arguments[0]);
        redisson = Redisson.create(config);
        warmUp(arguments[2]);
        Map<String, ExecutorService> threads = new HashMap<>();
        print("ready");
        while (true) {
            String[] words = lines.take().split(" ");
            threads.computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor()).submit(() -> run(words));
        }
    }

    /** Reads until the end, which is the end of the process. */
    private static void read(BlockingQueue<String> lines) {
        new BufferedReader(new InputStreamReader(System.in)).lines().forEach(lines::add);
        Runtime.getRuntime().halt(0);
    }

    /** Has the compiler translate what will be measured. */
    private static void warmUp(String name) throws Exception {
        String[] commands = permits > 0 ? new String[] {"acquire", "release"} : new String[] {"rlock", "runlock", "lock", "unlock"};
        if (permits > 0) {
            apply("permits", name);
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
        while (System.nanoTime() < end) {
            for (String command : commands) {
                apply(command, name);
            }
        }
    }

    private static void run(String[] words) {
        try {
            apply(words[1], words[2]);
            print(words[0] + " ok");
        } catch (Exception e) {
            print(words[0] + " error " + e);
        }
    }

    private static void apply(String command, String name) throws Exception {
        RReadWriteLock lock = redisson.getReadWriteLock(name);
        switch (command) {
            case "rlock": lock.readLock().lock(); break;
            case "runlock": lock.readLock().unlock(); break;
            case "lock": lock.writeLock().lock(); break;
            case "unlock": lock.writeLock().unlock(); break;
            case "permits": redisson.getPermitExpirableSemaphore(name).trySetPermits(permits); break;
            case "acquire":
                permit.set(redisson.getPermitExpirableSemaphore(name).acquire(lease, TimeUnit.MILLISECONDS));
                break;
            case "release":
                redisson.getPermitExpirableSemaphore(name).release(permit.get());
                break;
            default: throw new IllegalArgumentException(command);
        }
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
