// Prints, for random groups, what the assignors of Apache Kafka's Java client decide: one case per
// line, as JSON. Run by `java -cp kafka-clients.jar AssignorVectors.java SEED CASES`.
//
// A case is a group over several rebalances: members come, leave, change their topics, fall behind
// by a generation and claim what is not theirs. Each line holds the members in the order in which
// they joined, each with the bytes of its subscription, and the bytes of the assignment it gets.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class AssignorVectors {
    private static final String[] WORDS = {"orders", "pay", "clicks-eu", "t", "audit.log", "metrics_1"};

    private static final class Member {
        final String id;
        final Optional<String> instanceId;
        final ConsumerPartitionAssignor assignor;
        final short version;
        List<String> topics;
        List<TopicPartition> owned = new ArrayList<>();
        int generation = -1;

        Member(String id, Optional<String> instanceId, ConsumerPartitionAssignor assignor, short version) {
            this.id = id;
            this.instanceId = instanceId;
            this.assignor = assignor;
            this.version = version;
        }

        byte[] subscription() {
            Subscription said = new Subscription(topics, assignor.subscriptionUserData(Set.copyOf(topics)),
                owned, generation, Optional.empty());
            return bytes(ConsumerProtocol.serializeSubscription(said, version));
        }
    }

    private static ConsumerPartitionAssignor assignor(int number) {
        switch (number) {
            case 0: return new RangeAssignor();
            case 1: return new RoundRobinAssignor();
            case 2: return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    private static Cluster cluster(Map<String, Integer> counts) {
        Node node = new Node(1, "localhost", 9092);
        List<PartitionInfo> infos = new ArrayList<>();
        counts.forEach((topic, count) -> {
            for (int i = 0; i < count; i++)
                infos.add(new PartitionInfo(topic, i, node, new Node[] {node}, new Node[] {node}));
        });
        return new Cluster("cluster", List.of(node), infos, Set.of(), Set.of());
    }

    private static List<String> someTopics(Random random, List<String> topics) {
        List<String> chosen = new ArrayList<>(topics);
        Collections.shuffle(chosen, random);
        return new ArrayList<>(chosen.subList(0, 1 + random.nextInt(chosen.size())));
    }

    private static Member newMember(Random random, int kind, int number, List<String> topics, boolean alike) {
        String name = (random.nextBoolean() ? "consumer-group-" : "client#") + number + "-" + random.nextInt(1000000);
        Optional<String> instance = random.nextInt(4) == 0 ? Optional.of("i" + random.nextInt(100) + "." + number) : Optional.empty();
        short version = (short) (random.nextInt(3) == 0 ? random.nextInt(4) : 3);
        Member member = new Member(name, instance, assignor(kind), version);
        member.topics = alike ? new ArrayList<>(topics) : someTopics(random, topics);
        return member;
    }

    // One line; the group goes on from what was assigned. False: Kafka's assignor has failed, as its
    // sticky one does (NullPointerException) on some claims that members of one group may not make.
    private static boolean rebalance(String name, ConsumerPartitionAssignor leader, Map<String, Integer> counts,
                                     List<Member> members, int generation) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        StringBuilder line = new StringBuilder("{\"assignor\":\"" + name + "\",\"topics\":{");
        String comma = "";
        for (Map.Entry<String, Integer> entry : counts.entrySet()) {
            line.append(comma).append('"').append(entry.getKey()).append("\":").append(entry.getValue());
            comma = ",";
        }
        Map<String, byte[]> said = new LinkedHashMap<>();
        for (Member member : members) {
            byte[] data = member.subscription();
            said.put(member.id, data);
            Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(data));
            subscription.setGroupInstanceId(member.instanceId);
            subscriptions.put(member.id, subscription);
        }
        Map<String, Assignment> result;
        try {
            result = leader.assign(cluster(counts), new GroupSubscription(subscriptions)).groupAssignment();
        } catch (NullPointerException failed) {
            return false;
        }
        line.append("},\"members\":[");
        comma = "";
        for (Member member : members) {
            Assignment assignment = result.get(member.id);
            line.append(comma).append("[\"").append(member.id).append("\",");
            line.append(member.instanceId.map(i -> "\"" + i + "\"").orElse("null")).append(",\"");
            line.append(Base64.getEncoder().encodeToString(said.get(member.id))).append("\",\"");
            line.append(Base64.getEncoder().encodeToString(bytes(ConsumerProtocol.serializeAssignment(assignment)))).append("\"]");
            comma = ",";
            member.owned = new ArrayList<>(assignment.partitions());
            member.generation = generation;
            member.assignor.onAssignment(assignment, new ConsumerGroupMetadata("g", generation, member.id, member.instanceId));
        }
        System.out.println(line.append("]}"));
        return true;
    }

    private static void disturb(Random random, List<Member> members, Map<String, Integer> counts) {
        for (Member member : members) {
            int dice = random.nextInt(12);
            if (dice == 0) {
                member.generation = Math.max(-1, member.generation - 1 - random.nextInt(2));
            } else if (dice == 1) {
                member.owned = new ArrayList<>();
                member.generation = -1;
            } else if (dice == 2 && !counts.isEmpty()) {
                String topic = new ArrayList<>(counts.keySet()).get(random.nextInt(counts.size()));
                TopicPartition claimed = new TopicPartition(topic, random.nextInt(counts.get(topic)));
                if (!member.owned.contains(claimed))
                    member.owned.add(claimed);
            } else {
                continue;
            }
            member.assignor.onAssignment(new Assignment(member.owned),
                new ConsumerGroupMetadata("g", member.generation, member.id, member.instanceId));
        }
    }

    private static void group(Random random, int kind) {
        int topicCount = 1 + random.nextInt(random.nextInt(5) == 0 ? 20 : 5);
        List<String> topics = new ArrayList<>();
        Map<String, Integer> counts = new LinkedHashMap<>();
        for (int i = 0; i < topicCount; i++) {
            String topic = WORDS[random.nextInt(WORDS.length)] + (random.nextBoolean() ? "" : "-" + random.nextInt(50)) + "." + i;
            topics.add(topic);
            if (random.nextInt(10) != 0)
                counts.put(topic, 1 + random.nextInt(random.nextInt(6) == 0 ? 40 : 8));
        }
        boolean alike = random.nextInt(3) != 0;
        List<Member> members = new ArrayList<>();
        int number = 0;
        int start = 1 + random.nextInt(random.nextInt(8) == 0 ? 30 : 6);
        while (members.size() < start)
            members.add(newMember(random, kind, number++, topics, alike));
        int rounds = kind < 2 ? 2 : 5;
        for (int round = 0; round < rounds; round++) {
            ConsumerPartitionAssignor leader = assignor(kind);
            if (!rebalance(leader.name(), leader, counts, members, round))
                return;
            disturb(random, members, counts);
            if (random.nextBoolean() && members.size() > 1)
                members.remove(random.nextInt(members.size()));
            if (random.nextBoolean())
                members.add(newMember(random, kind, number++, topics, alike));
            if (!alike && random.nextInt(3) == 0)
                members.get(random.nextInt(members.size())).topics = someTopics(random, topics);
            if (random.nextInt(4) == 0 && !counts.isEmpty()) {
                String topic = new ArrayList<>(counts.keySet()).get(random.nextInt(counts.size()));
                counts.put(topic, counts.get(topic) + 1 + random.nextInt(3));
            }
            if (random.nextInt(8) == 0)
                Collections.shuffle(members, random);
        }
    }

    public static void main(String[] arguments) {
        Random random = new Random(Long.parseLong(arguments[0]));
        int groups = Integer.parseInt(arguments[1]);
        for (int i = 0; i < groups; i++)
            group(random, i % 4);
    }
}
