import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of one share group, each in a thread of its own, that say in a line what they do with each record:
 *
 * <pre>
 * ready
 * done MEMBER PARTITION OFFSET KEY DELIVERY_COUNT BEGAN_NS ENDED_NS OUTCOME
 * confirmed MEMBER PARTITION OFFSETS...
 * refused MEMBER PARTITION EXCEPTION
 * </pre>
 *
 * Arguments: bootstrap servers, group, topic, and settings as name=value:
 * members (1), max.poll.records (500), records (how many are to be finished, then everybody leaves),
 * slow.key (none), slow.ms (0), fast.ms (0): how long a record takes;
 * outcome: accept without saying so (implicit), say accept, release or reject of the first delivery of each record
 * (accept, release, reject), or leave without a word after the first record (vanish);
 * commit: leave acknowledgements to the next poll (poll), or call commitSync after each batch (sync).
 */
public class ShareWorkers {
    private static final Properties SETTINGS = new Properties();
    private static final AtomicInteger FINISHED = new AtomicInteger();
    private static final AtomicBoolean FAILED = new AtomicBoolean();

    public static void main(String[] args) throws InterruptedException {
        for (int at = 3; at < args.length; at++) {
            String[] setting = args[at].split("=", 2);
            SETTINGS.setProperty(setting[0], setting[1]);
        }
        int members = number("members", 1);
        CountDownLatch begun = new CountDownLatch(members);
        List<Thread> threads = new ArrayList<>();
        for (int member = 0; member < members; member++) {
            int name = member;
            Thread thread = new Thread(() -> work(name, args[0], args[1], args[2], begun));
            threads.add(thread);
            thread.start();
        }
        begun.await();
        say("ready");
        for (Thread thread : threads)
            thread.join();
        System.exit(FAILED.get() ? 1 : 0);
    }

    private static int number(String name, int otherwise) {
        return Integer.parseInt(SETTINGS.getProperty(name, String.valueOf(otherwise)));
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void work(int member, String servers, String group, String topic, CountDownLatch begun) {
        String outcome = SETTINGS.getProperty("outcome", "implicit");
        Properties config = new Properties();
        config.put("bootstrap.servers", servers);
        config.put("group.id", group);
        config.put("client.id", "worker-" + member);
        config.put("max.poll.records", SETTINGS.getProperty("max.poll.records", "500"));
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        config.put("share.acknowledgement.mode", outcome.equals("implicit") || outcome.equals("vanish") ? "implicit" : "explicit");
        int wanted = number("records", Integer.MAX_VALUE);
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(config)) {
            consumer.setAcknowledgementCommitCallback((offsets, exception) -> offsets.forEach((partition, numbers) -> say(
                exception == null
                    ? "confirmed " + member + " " + partition.partition() + numbers.stream().map(n -> " " + n).reduce("", String::concat)
                    : "refused " + member + " " + partition.partition() + " " + exception.getClass().getSimpleName())));
            consumer.subscribe(List.of(topic));
            boolean first = true;
            while (FINISHED.get() < wanted) {
                // As long as nothing is assigned to it, Kafka 4.1's share consumer does not wait in poll but spins.
                var records = consumer.poll(Duration.ofMillis(first ? 1 : 200));
                if (first && (!records.isEmpty() || joined(consumer))) {
                    begun.countDown();
                    first = false;
                } else if (first) {
                    Thread.sleep(20);
                }
                for (ConsumerRecord<String, String> record : records)
                    if (handle(member, consumer, record, outcome))
                        Runtime.getRuntime().halt(0);
                if (SETTINGS.getProperty("commit", "poll").equals("sync"))
                    consumer.commitSync();
            }
            if (first)
                begun.countDown();
            consumer.commitSync(); // a consumer that leaves without it releases its last records
        } catch (RuntimeException | InterruptedException problem) {
            problem.printStackTrace();
            FAILED.set(true);
            FINISHED.set(Integer.MAX_VALUE);
            while (begun.getCount() > 0)
                begun.countDown();
        }
    }

    private static boolean joined(KafkaShareConsumer<String, String> consumer) {
        return consumer.metrics().entrySet().stream().anyMatch(metric -> metric.getKey().name().equals("heartbeat-total")
            && ((Number) metric.getValue().metricValue()).doubleValue() >= 2);
    }

    /** Whether the whole program is to vanish now. */
    private static boolean handle(
        int member, KafkaShareConsumer<String, String> consumer, ConsumerRecord<String, String> record, String outcome
    ) throws InterruptedException {
        long began = System.nanoTime();
        boolean slow = record.key() != null && record.key().equals(SETTINGS.getProperty("slow.key"));
        int ms = number(slow ? "slow.ms" : "fast.ms", 0);
        if (ms > 0)
            Thread.sleep(ms);
        short deliveries = record.deliveryCount().orElse((short) -1);
        AcknowledgeType type = Map.of("release", AcknowledgeType.RELEASE, "reject", AcknowledgeType.REJECT)
            .getOrDefault(deliveries == 1 ? outcome : "accept", AcknowledgeType.ACCEPT);
        say(String.join(" ", "done", String.valueOf(member), String.valueOf(record.partition()), String.valueOf(record.offset()),
            String.valueOf(record.key()), String.valueOf(deliveries), String.valueOf(began), String.valueOf(System.nanoTime()),
            type.toString()));
        if (outcome.equals("vanish"))
            return true;
        if (!outcome.equals("implicit"))
            consumer.acknowledge(record, type);
        if (type != AcknowledgeType.RELEASE)
            FINISHED.incrementAndGet();
        return false;
    }
}
