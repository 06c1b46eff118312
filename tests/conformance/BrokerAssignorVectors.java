// Prints, for random groups, what the assignors of Apache Kafka's broker decide: one case per line,
// as JSON. Run by `java -cp 'LIBS/*' BrokerAssignorVectors.java SEED GROUPS`.
//
// A case is a group over several rebalances: members come, leave and change their topics; topics
// come, grow and are deleted. Where the broker goes through a set in the order of hashes, which
// depends on its size, the same set in order is put in its place beforehand: topics in the order of
// their ids, partitions and members in that of their numbers. Members are given in the order of
// their ids. Everything else is the broker's own code. Each line has
//
//     [assignor, homogeneous, [[topic id, partitions], ...], [member, ...], assignable or null]
//
// where a member is [id, instance id or null, [topic, ...], "before", "after"], topics are numbers of
// places in the list, and partitions are texts as "0:0-3,7;2:1", topic by topic. A case that Kafka's
// code cannot compute has null as "after" of each member.

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleHeterogeneousAssignmentBuilder;
import org.apache.kafka.coordinator.group.assignor.SimpleHomogeneousAssignmentBuilder;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformHomogeneousAssignmentBuilder;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.server.common.TopicIdPartition;

public class BrokerAssignorVectors {
    private static final String[] ASSIGNORS = {"uniform", "range", "simple"};
    private static final Comparator<TopicIdPartition> ORDER =
        Comparator.comparing(TopicIdPartition::topicId).thenComparingInt(TopicIdPartition::partitionId);

    private static final class Member {
        final String id;
        final Optional<String> instanceId;
        Set<Uuid> topics = new TreeSet<>();
        Map<Uuid, Set<Integer>> assigned = new TreeMap<>();

        Member(String id, Optional<String> instanceId) {
            this.id = id;
            this.instanceId = instanceId;
        }
    }

    private static final class Group {
        final TreeMap<String, Member> members = new TreeMap<>();
        final TreeMap<Uuid, Integer> topics = new TreeMap<>();
        Map<Uuid, Set<Integer>> assignable = null;
        boolean alike;

        GroupSpec spec() {
            Map<String, MemberSubscriptionAndAssignmentImpl> specs = new LinkedHashMap<>();
            Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
            members.forEach((id, member) -> {
                specs.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), member.instanceId,
                    member.topics, new Assignment(new TreeMap<>(member.assigned))));
                member.assigned.forEach((topic, partitions) -> partitions.forEach(partition ->
                    owners.computeIfAbsent(topic, key -> new HashMap<>()).put(partition, id)));
            });
            return new GroupSpecImpl(specs, alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS,
                owners, Optional.ofNullable(assignable));
        }

        SubscribedTopicDescriber describer() {
            return new SubscribedTopicDescriber() {
                @Override
                public int numPartitions(Uuid topicId) {
                    return topics.getOrDefault(topicId, -1);
                }

                @Override
                public Set<String> racksForPartition(Uuid topicId, int partition) {
                    return Set.of();
                }
            };
        }
    }

    private static Object get(Object owner, String name) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    private static void set(Object owner, String name, Object value) throws Exception {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        field.set(owner, value);
    }

    private static GroupAssignment uniform(Group group) throws Exception {
        if (!group.alike)
            return new UniformAssignor().assign(group.spec(), group.describer());
        Constructor<UniformHomogeneousAssignmentBuilder> constructor = UniformHomogeneousAssignmentBuilder.class
            .getDeclaredConstructor(GroupSpec.class, SubscribedTopicDescriber.class);
        constructor.setAccessible(true);
        UniformHomogeneousAssignmentBuilder builder = constructor.newInstance(group.spec(), group.describer());
        set(builder, "subscribedTopicIds", new TreeSet<>((Set<Uuid>) get(builder, "subscribedTopicIds")));
        return builder.build();
    }

    private static GroupAssignment simpleAlike(Group group) throws Exception {
        SimpleHomogeneousAssignmentBuilder builder =
            new SimpleHomogeneousAssignmentBuilder(group.spec(), group.describer());
        Map<TopicIdPartition, Set<Integer>> byPartition = new TreeMap<>(ORDER);
        for (TopicIdPartition target : (List<TopicIdPartition>) get(builder, "targetPartitions"))
            byPartition.put(target, new TreeSet<>());
        Set<Uuid> subscribed = group.members.firstEntry().getValue().topics;
        Map<Integer, Set<TopicIdPartition>> byMember = new TreeMap<>();
        int index = 0;
        for (Member member : group.members.values()) {
            byMember.put(index++, new TreeSet<>(ORDER));
            member.assigned.forEach((topic, partitions) -> {
                if (subscribed.contains(topic))
                    partitions.forEach(partition ->
                        byPartition.computeIfAbsent(new TopicIdPartition(topic, partition), key -> new TreeSet<>()));
            });
        }
        set(builder, "finalAssignmentByPartition", byPartition);
        set(builder, "finalAssignmentByMember", byMember);
        return builder.build();
    }

    private static GroupAssignment simpleMixed(Group group) throws Exception {
        SimpleHeterogeneousAssignmentBuilder builder =
            new SimpleHeterogeneousAssignmentBuilder(group.spec(), group.describer());
        Set<Uuid> subscribed = (Set<Uuid>) get(builder, "subscribedTopicIds");
        if (subscribed.isEmpty())
            return builder.build();
        Map<Uuid, List<Integer>> members = (Map<Uuid, List<Integer>>) get(builder, "subscribedMembersByTopic");
        Map<Uuid, List<TopicIdPartition>> targets = (Map<Uuid, List<TopicIdPartition>>) get(builder, "targetPartitionsByTopic");
        Constructor<?> constructor = SimpleHeterogeneousAssignmentBuilder.class.getDeclaredClasses()[0]
            .getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        for (Uuid topic : subscribed) {
            Object part = constructor.newInstance(builder, topic, group.members.size(), targets.get(topic), members.get(topic));
            Map<Integer, Set<Integer>> byPartition = new TreeMap<>();
            for (TopicIdPartition target : targets.get(topic))
                byPartition.put(target.partitionId(), new TreeSet<>());
            Map<Integer, Set<Integer>> byMember = new TreeMap<>();
            int index = 0;
            for (Member member : group.members.values()) {
                byMember.put(index++, new TreeSet<>());
                member.assigned.getOrDefault(topic, Set.of()).forEach(partition ->
                    byPartition.computeIfAbsent(partition, key -> new TreeSet<>()));
            }
            set(part, "finalAssignmentByPartition", byPartition);
            set(part, "finalAssignmentByMember", byMember);
            Method build = part.getClass().getDeclaredMethod("build");
            build.setAccessible(true);
            build.invoke(part);
        }
        // The last step of the builder's own `build`, which would begin with the parts above.
        List<String> ids = (List<String>) get(builder, "memberIds");
        Map<Integer, Map<Uuid, Set<Integer>>> before = (Map<Integer, Map<Uuid, Set<Integer>>>) get(builder, "oldGroupAssignment");
        Map<Integer, Map<Uuid, Set<Integer>>> after = (Map<Integer, Map<Uuid, Set<Integer>>>) get(builder, "newGroupAssignment");
        Map<String, MemberAssignment> result = new HashMap<>();
        for (int i = 0; i < ids.size(); i++)
            result.put(ids.get(i), new MemberAssignmentImpl(after.getOrDefault(i, before.get(i))));
        return new GroupAssignment(result);
    }

    private static GroupAssignment assign(String assignor, Group group) throws Exception {
        if (assignor.equals("uniform"))
            return uniform(group);
        if (assignor.equals("range"))
            return new RangeAssignor().assign(group.spec(), group.describer());
        return group.alike ? simpleAlike(group) : simpleMixed(group);
    }

    private static String runs(Set<Integer> partitions) {
        List<String> runs = new ArrayList<>();
        int first = -2;
        int last = -2;
        for (int partition : new TreeSet<>(partitions)) {
            if (partition != last + 1) {
                if (last >= 0)
                    runs.add(first == last ? "" + first : first + "-" + last);
                first = partition;
            }
            last = partition;
        }
        if (last >= 0)
            runs.add(first == last ? "" + first : first + "-" + last);
        return String.join(",", runs);
    }

    private static String text(Map<Uuid, Set<Integer>> partitions, List<Uuid> places) {
        List<String> parts = new ArrayList<>();
        for (int i = 0; i < places.size(); i++) {
            Set<Integer> own = partitions.getOrDefault(places.get(i), Set.of());
            if (!own.isEmpty())
                parts.add(i + ":" + runs(own));
        }
        return String.join(";", parts);
    }

    // One line; the group goes on from what was assigned.
    private static void rebalance(String assignor, Group group) throws Exception {
        Map<String, MemberAssignment> result;
        try {
            result = assign(assignor, group).members();
        } catch (Exception error) {
            result = null;
        }
        Set<Uuid> named = new TreeSet<>(group.topics.keySet());
        group.members.values().forEach(member -> named.addAll(member.assigned.keySet()));
        List<Uuid> places = new ArrayList<>(named);
        StringBuilder line = new StringBuilder("[\"" + assignor + "\"," + group.alike + ",[");
        String comma = "";
        for (Uuid topic : places) {
            line.append(comma).append(String.format("[\"%016x%016x\",%d]", topic.getMostSignificantBits(),
                topic.getLeastSignificantBits(), group.topics.getOrDefault(topic, -1)));
            comma = ",";
        }
        line.append("],[");
        comma = "";
        for (Member member : group.members.values()) {
            List<String> topics = new ArrayList<>();
            member.topics.forEach(topic -> topics.add("" + places.indexOf(topic)));
            line.append(comma).append("[\"").append(member.id).append("\",");
            line.append(member.instanceId.map(i -> "\"" + i + "\"").orElse("null"));
            line.append(",[").append(String.join(",", topics)).append("],\"");
            line.append(text(member.assigned, places)).append("\",");
            comma = ",";
            if (result == null) {
                line.append("null]");
                continue;
            }
            MemberAssignment assignment = result.get(member.id);
            Map<Uuid, Set<Integer>> after = assignment == null ? Map.of() : assignment.partitions();
            line.append('"').append(text(after, places)).append("\"]");
            member.assigned = new TreeMap<>();
            after.forEach((topic, partitions) -> {
                if (!partitions.isEmpty())
                    member.assigned.put(topic, new TreeSet<>(partitions));
            });
        }
        line.append("],");
        line.append(group.assignable == null ? "null" : "\"" + text(group.assignable, places) + "\"");
        System.out.println(line.append("]"));
    }

    private static Set<Uuid> someTopics(Random random, Group group) {
        List<Uuid> chosen = new ArrayList<>(group.topics.keySet());
        Collections.shuffle(chosen, random);
        return new TreeSet<>(chosen.subList(0, random.nextInt(chosen.size() + 1)));
    }

    private static void addMember(Random random, Group group) {
        String id = String.format("%s%06x", random.nextBoolean() ? "m-" : "consumer.", random.nextInt(1 << 24));
        Optional<String> instance = random.nextInt(4) == 0 ? Optional.of("i" + random.nextInt(100000)) : Optional.empty();
        Member member = new Member(id, instance);
        if (group.alike && !group.members.isEmpty())
            member.topics = new TreeSet<>(group.members.firstEntry().getValue().topics);
        else
            member.topics = group.alike ? new TreeSet<>(group.topics.keySet()) : someTopics(random, group);
        group.members.put(id, member);
    }

    private static void removeMember(Random random, Group group) {
        List<String> ids = new ArrayList<>(group.members.keySet());
        group.members.remove(ids.get(random.nextInt(ids.size())));
    }

    private static void addTopic(Random random, Group group, int mostPartitions) {
        group.topics.put(new Uuid(random.nextLong(), random.nextLong()), 1 + random.nextInt(mostPartitions));
    }

    private static void change(Random random, Group group, int mostPartitions) {
        for (int i = random.nextInt(1 + group.members.size() / 4 + 1); i > 0 && group.members.size() > 1; i--)
            removeMember(random, group);
        for (int i = random.nextInt(1 + group.members.size() / 4 + 1); i > 0 && group.members.size() < 100; i--)
            addMember(random, group);
        List<Uuid> topics = new ArrayList<>(group.topics.keySet());
        Uuid topic = topics.get(random.nextInt(topics.size()));
        int dice = random.nextInt(8);
        if (dice == 0)
            addTopic(random, group, mostPartitions);
        else if (dice <= 2)
            group.topics.put(topic, group.topics.get(topic) + 1 + random.nextInt(4));
        else if (dice == 3 && topics.size() > 1)
            group.topics.remove(topic);
        for (Member member : group.members.values())
            member.topics.retainAll(group.topics.keySet());
        if (group.alike && random.nextInt(3) == 0)
            group.members.values().forEach(member -> member.topics = new TreeSet<>(group.topics.keySet()));
        if (!group.alike)
            group.members.values().forEach(member -> {
                if (random.nextInt(6) == 0)
                    member.topics = someTopics(random, group);
            });
        if (random.nextInt(12) == 0) {
            group.alike = !group.alike;
            if (group.alike)
                group.members.values().forEach(member -> member.topics = new TreeSet<>(group.topics.keySet()));
        }
    }

    private static void chooseAssignable(Random random, String assignor, Group group) {
        group.assignable = null;
        if (!assignor.equals("simple") || random.nextInt(3) != 0)
            return;
        group.assignable = new HashMap<>();
        group.topics.forEach((topic, count) -> {
            if (random.nextInt(4) == 0)
                return;
            Set<Integer> partitions = new TreeSet<>();
            for (int i = 0; i < count; i++)
                if (random.nextInt(10) != 0)
                    partitions.add(i);
            group.assignable.put(topic, partitions);
        });
        // What was assigned was assignable, and stays so.
        group.members.values().forEach(member -> member.assigned.forEach((topic, partitions) ->
            group.assignable.computeIfAbsent(topic, key -> new TreeSet<>()).addAll(partitions)));
    }

    private static void group(Random random, String assignor) throws Exception {
        boolean large = random.nextInt(8) == 0;
        Group group = new Group();
        group.alike = random.nextInt(2) == 0;
        int mostPartitions = large ? 200 : random.nextInt(3) == 0 ? 40 : 8;
        for (int i = 1 + random.nextInt(large ? 10 : 5); i > 0; i--)
            addTopic(random, group, mostPartitions);
        for (int i = 1 + random.nextInt(large ? 100 : 12); i > 0; i--)
            addMember(random, group);
        for (int round = 0; round < 5; round++) {
            chooseAssignable(random, assignor, group);
            rebalance(assignor, group);
            change(random, group, mostPartitions);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Random random = new Random(Long.parseLong(arguments[0]));
        int groups = Integer.parseInt(arguments[1]);
        for (int i = 0; i < groups; i++)
            group(random, ASSIGNORS[i % 3]);
    }
}
