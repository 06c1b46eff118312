// Prints what Apache Kafka's Java producer makes of keys: one JSON object per line with the key in
// hex, its murmur2, and its partition among 1, 3, 7, 100 and 1000. Run by
// `java -cp kafka-clients.jar PartitionerVectors.java SEED`.

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public class PartitionerVectors {
    private static final int[] COUNTS = {1, 3, 7, 100, 1000};
    private static final String[] TEXTS = {"N14228", "EWR", "2013-01-01T10:00:00Z|EWR|UA", "ключ"};

    private static void print(byte[] key) {
        StringBuilder line = new StringBuilder("{\"key\": \"" + HexFormat.of().formatHex(key));
        line.append("\", \"murmur2\": ").append(Utils.murmur2(key)).append(", \"partitions\": {");
        String separator = "";
        for (int count : COUNTS) {
            line.append(separator).append('"').append(count).append("\": ");
            line.append(BuiltInPartitioner.partitionForKey(key, count));
            separator = ", ";
        }
        System.out.println(line.append("}}"));
    }

    public static void main(String[] arguments) {
        Random random = new Random(Long.parseLong(arguments[0]));
        for (int size = 0; size <= 24; size++) {
            byte[] key = new byte[size];
            random.nextBytes(key);
            print(key);
            Arrays.fill(key, (byte) -1);
            print(key);
        }
        for (int size : new int[] {63, 64, 65, 300}) {
            byte[] key = new byte[size];
            random.nextBytes(key);
            print(key);
        }
        for (String text : TEXTS) {
            print(text.getBytes(StandardCharsets.UTF_8));
        }
    }
}
