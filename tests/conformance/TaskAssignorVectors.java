// Prints, for random streams groups, what the task assignor of Apache Kafka's group coordinator
// decides: one case per line, as JSON. Run by `java -cp LIBS TaskAssignorVectors.java SEED GROUPS MAX`.
//
// A group goes through several rebalances: members and processes come and leave, subtopologies come
// and grow, the number of standby replicas changes, targets get lost or are claimed twice. A line
// holds [standby replicas, {subtopology: [tasks, is stateful]}, [[member, process, target before,
// target after], ...]], where a target is [active, standby], each {subtopology: [partitions]}.

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

public class TaskAssignorVectors {
    private static final class Member {
        final String id;
        final String process;
        Map<String, Set<Integer>> active = new TreeMap<>();
        Map<String, Set<Integer>> standby = new TreeMap<>();

        Member(String id, String process) {
            this.id = id;
            this.process = process;
        }
    }

    private record Subtopology(int tasks, boolean stateful) { }

    private record Described(SortedMap<String, Subtopology> all) implements TopologyDescriber {
        @Override public List<String> subtopologies() { return new ArrayList<>(all.keySet()); }
        @Override public int maxNumInputPartitions(String id) { return found(id).tasks(); }
        @Override public boolean isStateful(String id) { return found(id).stateful(); }

        private Subtopology found(String id) {
            if (!all.containsKey(id)) throw new NoSuchElementException(id);
            return all.get(id);
        }
    }

    private static String sets(Map<String, Set<Integer>> tasks) {
        StringBuilder text = new StringBuilder("{");
        for (Map.Entry<String, Set<Integer>> entry : new TreeMap<>(tasks).entrySet()) {
            text.append(text.length() > 1 ? "," : "").append('"').append(entry.getKey()).append("\":");
            text.append(new TreeSet<>(entry.getValue()).toString().replace(" ", ""));
        }
        return text.append('}').toString();
    }

    private static void rebalance(int standbys, SortedMap<String, Subtopology> topology, List<Member> members) {
        Map<String, AssignmentMemberSpec> specs = new HashMap<>();
        for (Member member : members)
            specs.put(member.id, new AssignmentMemberSpec(Optional.empty(), Optional.empty(), member.active,
                member.standby, Map.of(), member.process, Map.of(), Map.of(), Map.of()));
        GroupAssignment result = new StickyTaskAssignor().assign(
            new GroupSpecImpl(specs, Map.of("num.standby.replicas", "" + standbys)), new Described(topology));
        StringBuilder line = new StringBuilder("[" + standbys + ",{");
        String comma = "";
        for (Map.Entry<String, Subtopology> entry : topology.entrySet()) {
            line.append(comma).append('"').append(entry.getKey()).append("\":[").append(entry.getValue().tasks());
            line.append(entry.getValue().stateful() ? ",1]" : ",0]");
            comma = ",";
        }
        line.append("},[");
        comma = "";
        for (Member member : members) {
            MemberAssignment now = result.members().get(member.id);
            line.append(comma).append("[\"").append(member.id).append("\",\"").append(member.process).append("\",[");
            line.append(sets(member.active)).append(',').append(sets(member.standby)).append("],[");
            line.append(sets(now.activeTasks())).append(',').append(sets(now.standbyTasks())).append("]]");
            comma = ",";
            member.active = new TreeMap<>(now.activeTasks());
            member.standby = new TreeMap<>(now.standbyTasks());
        }
        System.out.println(line.append("]]"));
    }

    private static String newId(Random random) {
        byte[] bytes = new byte[16];
        random.nextBytes(bytes);
        return java.util.Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    private static Member newMember(Random random, List<Member> members, int threads) {
        if (!members.isEmpty() && random.nextInt(threads) != 0)
            return new Member(newId(random), members.get(random.nextInt(members.size())).process);
        return new Member(newId(random), newId(random) + "-p");
    }

    private static void disturb(Random random, List<Member> members) {
        for (Member member : members) {
            int dice = random.nextInt(20);
            if (dice == 0) {
                member.active = new TreeMap<>();
            } else if (dice == 1) {
                member.standby = new TreeMap<>();
            } else if (dice == 2) {  // claims of another's
                Member other = members.get(random.nextInt(members.size()));
                other.standby.forEach((id, tasks) ->
                    member.standby.computeIfAbsent(id, any -> new HashSet<>()).addAll(tasks));
            }
        }
    }

    private static void group(Random random, int max) {
        SortedMap<String, Subtopology> topology = new TreeMap<>();
        int subtopologies = 1 + random.nextInt(4);
        int most = random.nextInt(5) == 0 ? 1 + max : 8;
        for (int i = 0; i < subtopologies; i++)
            topology.put(random.nextInt(4) == 0 ? "sub-" + random.nextInt(100) : "" + i * random.nextInt(12),
                new Subtopology(1 + random.nextInt(most), random.nextBoolean()));
        int standbys = random.nextInt(4);
        int threads = 1 + random.nextInt(4);
        List<Member> members = new ArrayList<>();
        int start = 1 + random.nextInt(random.nextInt(6) == 0 ? 1 + max / 10 : 6);
        while (members.size() < start)
            members.add(newMember(random, members, threads));
        for (int round = 0; round < 5; round++) {
            rebalance(standbys, topology, members);
            disturb(random, members);
            int leaving = random.nextInt(3);
            for (int i = 0; i < leaving && members.size() > 1; i++)
                members.remove(random.nextInt(members.size()));
            int coming = random.nextInt(3);
            for (int i = 0; i < coming; i++)
                members.add(newMember(random, members, threads));
            if (random.nextInt(5) == 0)
                standbys = random.nextInt(4);
            if (random.nextInt(4) == 0) {
                String id = new ArrayList<>(topology.keySet()).get(random.nextInt(topology.size()));
                Subtopology old = topology.get(id);
                topology.put(id, new Subtopology(old.tasks() + 1 + random.nextInt(3), old.stateful()));
            }
        }
    }

    public static void main(String[] arguments) {
        Random random = new Random(Long.parseLong(arguments[0]));
        int groups = Integer.parseInt(arguments[1]);
        for (int i = 0; i < groups; i++)
            group(random, Integer.parseInt(arguments[2]));
    }
}
