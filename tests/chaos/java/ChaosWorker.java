import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A worker with the clients of Apache Kafka: see python_worker.py, whose tasks and answers are the same.
 */
public final class ChaosWorker {
    private static final long TIMEOUT_MS = 12_000;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long RELAYED = 1_000_000_000L;
    private static final ObjectMapper JSON = new ObjectMapper();

    /** The task has failed and will have no effect. */
    private static final class Failed extends Exception {
        private static final long serialVersionUID = 1L;

        Failed(Throwable cause) {
            super(String.valueOf(cause), cause);
        }
    }

    /** Whether the task had its effect is not known. */
    private static final class Unknown extends Exception {
        private static final long serialVersionUID = 1L;

        Unknown(String message) {
            super(message);
        }
    }

    /** What a transaction does between its begin and its end. */
    private interface Body {
        void run(KafkaProducer<String, String> producer) throws Exception;
    }

    private record Sent(ArrayNode step, Future<RecordMetadata> result) {}

    private final JsonNode settings;
    private KafkaProducer<String, String> plain;
    private KafkaProducer<String, String> transactional;
    private KafkaConsumer<String, String> consumer;
    private boolean subscribed;
    private boolean moved;
    private final Set<TopicPartition> known = new HashSet<>();
    private final Map<TopicPartition, Long> firsts = new LinkedHashMap<>();
    private final List<Sent> sent = new ArrayList<>();
    private ArrayNode steps = JSON.createArrayNode();

    private ChaosWorker(JsonNode settings) {
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        ChaosWorker worker = new ChaosWorker(JSON.readTree(args[0]));
        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String task = tasks.readLine(); task != null; task = tasks.readLine()) {
            ObjectNode answer = worker.perform(JSON.readTree(task));
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
            if (answer.has("has_ended")) {
                break;
            }
        }
        System.exit(0); // not waiting for a producer that cannot reach its broker
    }

    private ObjectNode perform(JsonNode task) {
        steps = JSON.createArrayNode();
        firsts.clear();
        sent.clear();
        String state = "ok";
        String error = null;
        try {
            switch (task.get("what").asText()) {
                case "assign" -> assign(task);
                case "subscribe" -> subscribe(task);
                case "poll" -> poll(task);
                case "send" -> send(task);
                case "txn" -> inTransaction(producer -> steps(producer, task));
                case "relay" -> inTransaction(producer -> relay(producer, task));
                case "audit" -> audit(task);
                default -> throw new IllegalArgumentException(task.toString());
            }
        } catch (Unknown problem) {
            state = "info";
            error = problem.getMessage();
        } catch (Failed | KafkaException problem) {
            state = "fail";
            error = problem.toString();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
        if (!state.equals("ok") && consumer != null) {
            for (Map.Entry<TopicPartition, Long> first : firsts.entrySet()) {
                if (consumer.assignment().contains(first.getKey())) {
                    consumer.seek(first.getKey(), first.getValue());
                }
            }
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("state", state).put("what", task.get("what").asText()).set("steps", steps);
        if (moved) {
            answer.put("moved", true);
            moved = false;
        }
        if (error != null) {
            answer.put("error", error);
        }
        if (state.equals("info") && task.get("what").asText().equals("relay")) {
            answer.put("has_ended", true); // whether it is committed, the group's offsets say: to another member
        }
        return answer;
    }

    // -- consuming ---------------------------------------------------------------------------------------------------

    private void assign(JsonNode task) {
        List<TopicPartition> wanted = new ArrayList<>();
        task.get("keys").forEach(key -> wanted.add(partition(key.asText())));
        Set<TopicPartition> kept = new HashSet<>(known);
        if (task.path("from_start").asBoolean()) {
            kept.clear();
        }
        consumer().assign(wanted);
        List<TopicPartition> fresh = wanted.stream().filter(one -> !kept.contains(one)).toList();
        if (!fresh.isEmpty()) {
            consumer().seekToBeginning(fresh);
        }
        known.clear();
        known.addAll(wanted);
    }

    private void subscribe(JsonNode task) {
        subscribed = true;
        List<String> topics = new ArrayList<>();
        task.get("keys").forEach(topic -> topics.add(topic.asText()));
        consumer().subscribe(topics, new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                moved = true;
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                moved = true;
            }
        });
    }

    private void poll(JsonNode task) {
        for (int count = task.get("steps").size(); count > 0; count--) {
            pollOnce();
        }
        if (subscribed && !firsts.isEmpty()) {
            consumer().commitSync(offsets(), Duration.ofMillis(TIMEOUT_MS));
        }
    }

    private void audit(JsonNode task) throws Unknown {
        List<TopicPartition> all = new ArrayList<>();
        task.get("keys").forEach(key -> all.add(partition(key.asText())));
        Properties properties = common();
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        ObjectNode found = JSON.createObjectNode();
        all.forEach(one -> found.putArray(one.toString()));
        steps.addArray().add("poll").add(found);
        long deadline = System.nanoTime() + (long) (task.get("seconds").asDouble() * 1e9);
        properties.put("isolation.level", "read_uncommitted");
        Properties committed = new Properties();
        committed.putAll(properties);
        committed.put("isolation.level", "read_committed");
        try (KafkaConsumer<String, String> looker = newConsumer(properties);
                KafkaConsumer<String, String> reader = newConsumer(committed)) {
            reader.assign(all);
            reader.seekToBeginning(all);
            Map<TopicPartition, Long> ends = Map.of();
            Map<TopicPartition, Long> now = looker.endOffsets(all, Duration.ofMillis(TIMEOUT_MS));
            while (!now.equals(ends)) {  // a leader that has just been elected may not know at first what is committed
                ends = now;
                readTo(reader, ends, found, deadline);
                now = looker.endOffsets(all, Duration.ofMillis(TIMEOUT_MS));
            }
        }
    }

    private void readTo(
            KafkaConsumer<String, String> reader, Map<TopicPartition, Long> ends, ObjectNode found, long deadline)
            throws Unknown {
        while (true) {
            for (ConsumerRecord<String, String> record : reader.poll(POLL)) {
                ArrayNode of = (ArrayNode) found.get(record.topic() + "-" + record.partition());
                of.addArray().add(record.offset()).add(Long.parseLong(record.value()));
            }
            List<TopicPartition> missing = new ArrayList<>();
            for (TopicPartition one : ends.keySet()) {
                if (reader.position(one, Duration.ofMillis(TIMEOUT_MS)) < ends.get(one)) {
                    missing.add(one);
                }
            }
            if (missing.isEmpty()) {
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new Unknown("not read to the end: " + missing);
            }
        }
    }

    private List<ConsumerRecord<String, String>> pollOnce() {
        ObjectNode found = JSON.createObjectNode();
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        for (ConsumerRecord<String, String> record : consumer().poll(POLL)) {
            TopicPartition from = new TopicPartition(record.topic(), record.partition());
            firsts.putIfAbsent(from, record.offset());
            ArrayNode of = found.withArray("/" + from);
            of.addArray().add(record.offset()).add(Long.parseLong(record.value()));
            records.add(record);
        }
        steps.addArray().add("poll").add(found);
        return records;
    }

    private Map<TopicPartition, OffsetAndMetadata> offsets() {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition one : firsts.keySet()) {
            if (consumer.assignment().contains(one)) {
                offsets.put(one, new OffsetAndMetadata(consumer.position(one)));
            }
        }
        return offsets;
    }

    private KafkaConsumer<String, String> consumer() {
        if (consumer == null) {
            Properties properties = common();
            settings.get("group").properties().forEach(
                    entry -> properties.put(entry.getKey(), entry.getValue().asText()));
            properties.put("isolation.level", "read_committed");
            properties.put("enable.auto.commit", "false");
            properties.put("auto.offset.reset", "earliest");
            properties.put("max.poll.records", "200");
            properties.put("fetch.max.wait.ms", "100");
            consumer = newConsumer(properties);
        }
        return consumer;
    }

    // -- producing ---------------------------------------------------------------------------------------------------

    private void send(JsonNode task) throws Exception {
        if (plain == null) {
            plain = new KafkaProducer<>(producing(), new StringSerializer(), new StringSerializer());
        }
        Throwable problem = null;
        try {
            steps(plain, task);
        } catch (KafkaException failure) { // what was sent before may be in the log
            problem = failure;
        }
        plain.flush();
        Throwable first = collect();
        problem = first == null ? problem : first;
        if (problem != null) {
            plain.close(Duration.ZERO);
            plain = null;
            throw new Unknown(problem.toString());
        }
    }

    private void steps(KafkaProducer<String, String> producer, JsonNode task) throws Exception {
        for (JsonNode step : task.get("steps")) {
            switch (step.get(0).asText()) {
                case "send" -> produce(producer, step.get(1).asText(), step.get(2).asLong());
                case "poll" -> pollOnce();
                default -> Thread.sleep((long) (step.get(1).asDouble() * 1000));
            }
        }
    }

    private void relay(KafkaProducer<String, String> producer, JsonNode task) throws Exception {
        for (ConsumerRecord<String, String> record : pollOnce()) {
            produce(producer, "out-" + record.partition(), Long.parseLong(record.value()) + RELAYED);
        }
        Thread.sleep((long) (task.path("seconds").asDouble() * 1000));
    }

    private void inTransaction(Body body) throws Exception {
        KafkaProducer<String, String> producer = transactional();
        boolean committing = false;
        try {
            producer.beginTransaction();
            body.run(producer);
            producer.flush();
            Throwable problem = collect();
            if (problem != null) {
                throw new Failed(problem);
            }
            if (subscribed && !firsts.isEmpty()) {
                producer.sendOffsetsToTransaction(offsets(), consumer.groupMetadata());
            }
            committing = true;
            commit(producer);
        } catch (Failed | KafkaException problem) {
            if (!aborted(producer) && committing) {
                throw new Unknown("while committing: " + problem);
            }
            throw new Failed(problem);
        }
    }

    /** Commits; what times out is called again, as the manual has it. */
    private static void commit(KafkaProducer<String, String> producer) {
        long deadline = System.nanoTime() + TIMEOUT_MS * 1_000_000;
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException | InterruptException problem) {
                if (System.nanoTime() > deadline) {
                    throw problem;
                }
            }
        }
    }

    /** Aborts; if that does not succeed, the producer is given up. */
    private boolean aborted(KafkaProducer<String, String> producer) {
        try {
            producer.abortTransaction();
            return true;
        } catch (KafkaException | IllegalStateException problem) {
            producer.close(Duration.ZERO);
            transactional = null;
            return false;
        }
    }

    private KafkaProducer<String, String> transactional() {
        if (transactional == null) {
            Properties properties = producing();
            properties.put("transactional.id", settings.get("transactional_id").asText());
            properties.put("transaction.timeout.ms", settings.get("transaction_timeout_ms").asText());
            KafkaProducer<String, String> producer =
                    new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
            try {
                producer.initTransactions();
            } catch (KafkaException problem) {
                producer.close(Duration.ZERO);
                throw problem;
            }
            transactional = producer;
        }
        return transactional;
    }

    private void produce(KafkaProducer<String, String> producer, String key, long value) {
        ArrayNode step = steps.addArray().add("send").add(key).add(value);
        TopicPartition to = partition(key);
        sent.add(new Sent(step, producer.send(new ProducerRecord<>(to.topic(), to.partition(), null, "" + value))));
    }

    /** Offsets of what was acknowledged go into the steps; the first error of what was not is returned. */
    private Throwable collect() throws InterruptedException {
        Throwable problem = null;
        for (Sent one : sent) {
            try {
                one.step().add(one.result().get().offset());
            } catch (ExecutionException failure) {
                problem = problem == null ? failure.getCause() : problem;
            }
        }
        return problem;
    }

    // -- settings ----------------------------------------------------------------------------------------------------

    private Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap").asText());
        properties.put("reconnect.backoff.ms", "20");
        properties.put("reconnect.backoff.max.ms", "200");
        properties.put("retry.backoff.ms", "50");
        properties.put("request.timeout.ms", "2000");
        properties.put("default.api.timeout.ms", String.valueOf(TIMEOUT_MS));
        return properties;
    }

    private Properties producing() {
        Properties properties = common();
        properties.put("acks", "all");
        properties.put("enable.idempotence", "true");
        properties.put("linger.ms", "0");
        properties.put("delivery.timeout.ms", "10000");
        properties.put("max.block.ms", String.valueOf(TIMEOUT_MS));
        return properties;
    }

    private static KafkaConsumer<String, String> newConsumer(Properties properties) {
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static TopicPartition partition(String key) {
        int dash = key.lastIndexOf('-');
        return new TopicPartition(key.substring(0, dash), Integer.parseInt(key.substring(dash + 1)));
    }
}
