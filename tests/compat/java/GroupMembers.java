import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of consumer groups, each in a thread of its own, which join and leave as standard input says:
 *
 * <pre>
 * join NAME topics=A,B|pattern=REGEX setting=value ...
 * leave NAME
 * </pre>
 *
 * and say what happens to them, a line each:
 *
 * <pre>
 * assigned|revoked|lost NAME TOPIC-PARTITION ...
 * read NAME TOPIC-PARTITION VALUE
 * failed NAME EXCEPTION MESSAGE
 * left NAME
 * </pre>
 *
 * What has been read is committed before the next poll. All end with standard input. Argument: bootstrap servers.
 */
public class GroupMembers {
    private static final Map<String, Member> MEMBERS = new HashMap<>();

    public static void main(String[] args) throws IOException, InterruptedException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("join")) {
                Member member = new Member(args[0], words);
                MEMBERS.put(words[1], member);
                member.start();
            } else {
                MEMBERS.remove(words[1]).leave();
            }
        }
        for (Member member : MEMBERS.values())
            member.leave();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final Properties config = new Properties();
        private volatile boolean leaving;

        Member(String servers, String[] words) {
            name = words[1];
            config.put("bootstrap.servers", servers);
            config.put("key.deserializer", StringDeserializer.class.getName());
            config.put("value.deserializer", StringDeserializer.class.getName());
            config.put("auto.offset.reset", "earliest");
            config.put("enable.auto.commit", "false");
            for (int at = 2; at < words.length; at++) {
                String[] setting = words[at].split("=", 2);
                config.setProperty(setting[0], setting[1]);
            }
        }

        void leave() throws InterruptedException {
            leaving = true;
            join();
        }

        @Override
        public void run() {
            String topics = (String) config.remove("topics");
            String pattern = (String) config.remove("pattern");
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
                if (pattern == null)
                    consumer.subscribe(List.of(topics.split(",")), this);
                else
                    consumer.subscribe(new SubscriptionPattern(pattern), this);
                while (!leaving) {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(20));
                    for (ConsumerRecord<String, String> record : records)
                        say("read " + name + " " + record.topic() + "-" + record.partition() + " " + record.value());
                    if (!records.isEmpty())
                        consumer.commitSync();
                }
            } catch (RuntimeException failure) {
                say("failed " + name + " " + failure.getClass().getSimpleName() + " " + failure.getMessage());
            }
            say("left " + name);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            tell("lost", partitions);
        }

        private void tell(String what, Collection<TopicPartition> partitions) {
            say(what + " " + name + " " + partitions.stream().map(TopicPartition::toString).collect(Collectors.joining(" ")));
        }
    }
}
