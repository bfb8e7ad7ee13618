import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.*;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs Kafka's own assignors on cases from standard input, one a line, and prints their results:
 *
 *     assignor topic=count,topic=count member/instance/hex-of-the-subscription ...
 *     member:topic-0,topic-1 member: ...
 */
public class Assignors {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            AbstractPartitionAssignor assignor = switch (words[0]) {
                case "range" -> new RangeAssignor();
                case "roundrobin" -> new RoundRobinAssignor();
                case "sticky" -> new StickyAssignor();
                default -> new CooperativeStickyAssignor();
            };
            Map<String, Integer> counts = new HashMap<>();
            for (String topic : words[1].split(","))
                counts.put(topic.split("=")[0], Integer.parseInt(topic.split("=")[1]));
            Map<String, Subscription> members = new TreeMap<>();
            for (String word : Arrays.copyOfRange(words, 2, words.length)) {
                String[] parts = word.split("/");
                Subscription told = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HexFormat.of().parseHex(parts[2])));
                if (!parts[1].isEmpty())
                    told.setGroupInstanceId(Optional.of(parts[1]));
                members.put(parts[0], told);
            }
            System.out.println(new TreeMap<>(assignor.assign(counts, members)).entrySet().stream()
                .map(share -> share.getKey() + ":" + share.getValue().stream().map(TopicPartition::toString).collect(Collectors.joining(",")))
                .collect(Collectors.joining(" ")));
        }
    }
}
