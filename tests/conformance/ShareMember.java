/*
 * A member of a share group for tests: takes records, and does with each what a seeded random
 * generator says. Writes a line for each delivery and each answer, so that a model can check them:
 *
 *   got PARTITION OFFSET COUNT        a record was delivered
 *   said PARTITION OFFSET TYPE        it is acknowledged so (accept, release, reject, renew), or kept
 *   kept PARTITION OFFSET...          these are acknowledged, and the broker has answered
 *   failed PARTITION REASON           the broker has refused the acknowledgements of this commit
 *   unsure PARTITION OFFSET...        these; they may count or not
 *
 * ShareMember.java BOOTSTRAP GROUP TOPIC SEED
 * It ends when standard input does.
 */

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;

public class ShareMember {
    private static final AtomicBoolean ENDS = new AtomicBoolean();

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("max.poll.records", "50");
        Random random = new Random(Long.parseLong(args[3]));
        Thread stop = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ignored) {
                // as good as the end
            }
            ENDS.set(true);
        });
        stop.setDaemon(true);
        stop.start();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(args[2]));
            System.out.println("ready");
            while (!ENDS.get()) {
                round(consumer, random);
                System.out.flush();
            }
        }
        System.out.println("closed");
    }

    private static void round(KafkaShareConsumer<byte[], byte[]> consumer, Random random) {
        Map<Integer, List<Long>> said = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(300))) {
            System.out.println("got " + record.partition() + " " + record.offset() + " "
                + record.deliveryCount().orElse((short) -1));
            AcknowledgeType type = choice(random);
            consumer.acknowledge(record, type);
            System.out.println("said " + record.partition() + " " + record.offset() + " "
                + type.toString().toLowerCase());
            if (type != AcknowledgeType.RENEW) {
                said.computeIfAbsent(record.partition(), p -> new ArrayList<>()).add(record.offset());
            }
        }
        Map<TopicIdPartition, Optional<KafkaException>> answers = consumer.commitSync();
        answers.forEach((partition, error) -> {
            List<Long> offsets = said.remove(partition.partition());
            error.ifPresent(reason ->
                System.out.println("failed " + partition.partition() + " " + reason));
            if (offsets != null) {
                String word = error.isPresent() ? "unsure " : "kept ";
                StringBuilder line = new StringBuilder(word + partition.partition());
                offsets.forEach(offset -> line.append(' ').append(offset));
                System.out.println(line);
            }
        });
    }

    private static AcknowledgeType choice(Random random) {
        int roll = random.nextInt(100);
        if (roll < 75) {
            return AcknowledgeType.ACCEPT;
        }
        if (roll < 90) {
            return AcknowledgeType.RELEASE;
        }
        return roll < 95 ? AcknowledgeType.REJECT : AcknowledgeType.RENEW;
    }
}
