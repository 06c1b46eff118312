// Times transactions of one record of 1 KB. Run by
// `java -cp kafka-clients.jar TransactionTimes.java BOOTSTRAP-SERVER TOPIC PRODUCERS SECONDS`.
//
// Each producer has a transactional id and a thread of its own: it begins a transaction, sends one
// record and commits, over and over. Once all have made WARM_UP transactions they go on for so many
// seconds. Printed are the microseconds from begin to commit of each transaction, one a line.

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TransactionTimes {
    private static final int WARM_UP = 30;

    private static final class OneProducer implements Callable<List<Long>> {
        private final Properties settings = new Properties();
        private final String topic;
        private final long durationNs;
        private final CyclicBarrier warm;

        OneProducer(String servers, String topic, int number, long durationNs, CyclicBarrier warm) {
            settings.put("bootstrap.servers", servers);
            settings.put("transactional.id", topic + "-" + number);
            settings.put("buffer.memory", "1048576");
            this.topic = topic;
            this.durationNs = durationNs;
            this.warm = warm;
        }

        @Override
        public List<Long> call() throws Exception {
            List<Long> timesNs = new ArrayList<>();
            ByteArraySerializer bytes = new ByteArraySerializer();
            try (KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(settings, bytes, bytes)) {
                try {
                    producer.initTransactions();
                    for (int i = 0; i < WARM_UP; i++) {
                        transaction(producer);
                    }
                } catch (RuntimeException failure) {
                    System.err.println(settings.get("transactional.id") + ": " + failure);
                    warm.reset(); // or the others would wait for this one for ever
                    throw failure;
                }
                warm.await();
                long endNs = System.nanoTime() + durationNs;
                while (System.nanoTime() < endNs) {
                    long beginNs = System.nanoTime();
                    transaction(producer);
                    timesNs.add(System.nanoTime() - beginNs);
                }
            }
            return timesNs;
        }

        private void transaction(KafkaProducer<byte[], byte[]> producer) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, new byte[1000]));
            producer.commitTransaction();
        }
    }

    public static void main(String[] arguments) throws Exception {
        int producers = Integer.parseInt(arguments[2]);
        long durationNs = (long) (Double.parseDouble(arguments[3]) * 1e9);
        CyclicBarrier warm = new CyclicBarrier(producers);
        ExecutorService threads = Executors.newFixedThreadPool(producers);
        List<Future<List<Long>>> results = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            results.add(
                threads.submit(
                    new OneProducer(arguments[0], arguments[1], number, durationNs, warm)));
        }
        for (Future<List<Long>> result : results) {
            for (long timeNs : result.get()) {
                System.out.println(timeNs / 1000);
            }
        }
        threads.shutdown();
    }
}
