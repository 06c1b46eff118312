/*
 * A member of a consumer group for tests: see python_member.py for the lines that it writes.
 *
 * GroupMember.java PROTOCOL ADDRESS TOPIC GROUP NAME SESSION_MS [INSTANCE_ID]
 * It commits by itself, often, and leaves when its input ends or says so.
 */

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownMemberIdException;

public class GroupMember {
    private static final AtomicBoolean LEAVES = new AtomicBoolean();
    private static final TreeSet<Integer> HELD = new TreeSet<>();

    private static void say(String event) {
        System.out.println("{" + event + ", \"at\": " + System.currentTimeMillis() + "}");
        System.out.flush();
    }

    private static final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(one -> HELD.add(one.partition()));
            say("\"assigned\": " + HELD);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(one -> HELD.remove(one.partition()));
            say("\"assigned\": " + HELD);
        }
    }

    /** Whoever is out of the group when it asks where to begin is told so here, and joins again. */
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            return consumer.poll(Duration.ofMillis(200));
        } catch (UnknownMemberIdException gone) {
            System.err.println(gone);
            return ConsumerRecords.empty();
        }
    }

    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("group.protocol", args[0]);
        settings.put("bootstrap.servers", args[1]);
        settings.put("group.id", args[3]);
        settings.put("client.id", args[4]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("auto.commit.interval.ms", "200");
        settings.put("fetch.max.wait.ms", "100");
        if (args[0].equals("classic")) {
            settings.put("session.timeout.ms", args[5]);
            settings.put("heartbeat.interval.ms", "500");
        }
        if (args.length > 6) {
            settings.put("group.instance.id", args[6]);
        }
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        Thread stop = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException ignored) {
                // as good as the end
            }
            LEAVES.set(true);
        });
        stop.setDaemon(true);
        stop.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(args[2]), new Listener());
            while (!LEAVES.get()) {
                StringBuilder found = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                    found.append(found.isEmpty() ? "" : ", ");
                    found.append("[" + record.partition() + ", " + record.offset() + "]");
                }
                if (!found.isEmpty()) {
                    say("\"records\": [" + found + "]");
                }
            }
        }
        say("\"left\": true");
    }
}
