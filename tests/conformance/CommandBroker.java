/*
 * A test as Java has it, with a broker of the command `kraftrio test-broker`: started before it,
 * ended after it. Prints what came back of what it sent, and whether the broker has ended.
 *
 * CommandBroker.java COMMAND...
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class CommandBroker {
    private static final int COUNT = 100;

    public static void main(String[] command) throws Exception {
        Process broker = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        var output = new InputStreamReader(broker.getInputStream(), StandardCharsets.UTF_8);
        String servers = new BufferedReader(output).readLine();
        try {
            sendInTransaction(servers);
            System.out.println("read " + read(servers));
        } finally {
            broker.getOutputStream().close();
        }
        System.out.println("ended " + broker.waitFor(30, TimeUnit.SECONDS));
    }

    private static void sendInTransaction(String servers) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic("orders", 3, (short) 1))).all().get();
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "transactional.id", "t");
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(settings, text, text)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int number = 0; number < COUNT; number++) {
                producer.send(new ProducerRecord<>("orders", "key " + number, "value " + number));
            }
            producer.commitTransaction();
        }
    }

    private static int read(String servers) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers,
            "group.id", "billing",
            "auto.offset.reset", "earliest",
            "isolation.level", "read_committed");
        var text = new StringDeserializer();
        int count = 0;
        try (var consumer = new KafkaConsumer<String, String>(settings, text, text)) {
            consumer.subscribe(List.of("orders"));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (count < COUNT && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (record.value().equals(record.key().replace("key", "value"))) {
                        count++;
                    }
                }
            }
            consumer.commitSync();
        }
        return count;
    }
}
