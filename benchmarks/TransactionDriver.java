import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own producer as a load, run from its source: transactions one after another; a line for each commit, then the seconds it took. */
public class TransactionDriver {
    public static void main(String[] arguments) {
        String servers = arguments[0], topic = arguments[1], id = arguments[2];
        int warmUp = Integer.parseInt(arguments[3]), count = Integer.parseInt(arguments[4]);
        int records = Integer.parseInt(arguments[5]), size = Integer.parseInt(arguments[6]);
        double secondsMax = Double.parseDouble(arguments[7]);
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", servers, "transactional.id", id, "linger.ms", "0"));
        byte[] value = new byte[size];
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            StringBuilder lines = new StringBuilder();
            long began = 0;
            int done = 0;
            for (int number = 0; number < warmUp + count; number++) {
                if (number == warmUp) began = System.nanoTime();
                if (number > warmUp && System.nanoTime() - began > secondsMax * 1e9) break;
                producer.beginTransaction();
                for (int record = 0; record < records; record++) producer.send(new ProducerRecord<>(topic, 0, null, value));
                long committing = System.nanoTime();
                producer.commitTransaction();
                if (number >= warmUp) {
                    lines.append((System.nanoTime() - committing) / 1000.0).append('\n');
                    done++;
                }
            }
            System.out.print(lines);
            System.out.println("seconds " + (System.nanoTime() - began) / 1e9);
        }
    }
}
