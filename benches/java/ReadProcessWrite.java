import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Consume, transform, produce, with the offsets in the transaction, as fast as it goes.
 *
 * <p>Arguments: bootstrap server, source topic, sink topic, records to warm up with, records to measure, milliseconds
 * after which a transaction is committed. Prints one line of JSON: records per second of the measured part, and how long
 * its commits took.
 */
public final class ReadProcessWrite {
    private ReadProcessWrite() {}

    /** Run the loop until all records are committed. */
    public static void main(String[] arguments) {
        long warmUp = Long.parseLong(arguments[3]);
        long wanted = warmUp + Long.parseLong(arguments[4]);
        long transactionNanos = Long.parseLong(arguments[5]) * 1_000_000;
        List<Double> commitMillis = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading(arguments[0]));
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writing(arguments[0]))) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            long processed = 0;
            long measuredFrom = 0;
            long measuredRecords = 0;
            while (processed < wanted) {
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                long began = System.nanoTime();
                boolean open = false;
                do {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(20));
                    if (!open && !records.isEmpty()) {
                        producer.beginTransaction();
                        open = true;
                        began = System.nanoTime();
                    }
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        byte[] value = record.value().clone();
                        value[0]++;
                        producer.send(new ProducerRecord<>(arguments[2], value));
                    }
                    positions.putAll(records.nextOffsets());
                    processed += records.count();
                } while (!open || (System.nanoTime() - began < transactionNanos && processed < wanted));
                long committing = System.nanoTime();
                producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                producer.commitTransaction();
                long committed = System.nanoTime();
                if (measuredFrom != 0) {
                    commitMillis.add((committed - committing) / 1e6);
                } else if (processed >= warmUp) {
                    measuredFrom = committed;
                    measuredRecords = processed;
                }
            }
            double seconds = (System.nanoTime() - measuredFrom) / 1e9;
            Collections.sort(commitMillis);
            System.out.printf(
                    "{\"records_per_s\": %.1f, \"commit_p50_ms\": %.3f, \"commit_p99_ms\": %.3f}%n",
                    (processed - measuredRecords) / seconds,
                    commitMillis.get(commitMillis.size() / 2),
                    commitMillis.get(commitMillis.size() * 99 / 100));
        }
    }

    private static Properties reading(String bootstrap) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, "read-process-write");
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        return settings;
    }

    private static Properties writing(String bootstrap) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, "read-process-write");
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        return settings;
    }
}
