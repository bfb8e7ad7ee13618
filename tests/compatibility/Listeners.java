import java.util.stream.Collectors;
import org.apache.kafka.common.message.ApiMessageType;

/** Prints the listeners on which Kafka serves each API: the key, then the kinds of listeners. */
public class Listeners {
    public static void main(String[] arguments) {
        for (ApiMessageType api : ApiMessageType.values())
            System.out.println(api.apiKey() + " " + api.listeners().stream()
                .map(kind -> kind.name().toLowerCase()).collect(Collectors.joining(" ")));
    }
}
