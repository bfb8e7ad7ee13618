import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Prints, for each line of a file with rules and a subject in hexadecimal, the name in hexadecimal that Kafka's mapper
 * gives; "none" where no rule applies, or the one that does cannot be used; "invalid" where it cannot read the rules.
 */
class MappedNames {
    public static void main(String[] paths) throws Exception {
        for (String line : Files.readAllLines(Path.of(paths[0])))
            System.out.println(mapped(text(line.split(" ", -1)[0]), text(line.split(" ", -1)[1])));
    }

    private static String mapped(String rules, String subject) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (IllegalArgumentException invalid) {
            return "invalid";
        }
        try {
            return "=" + HexFormat.of().formatHex(mapper.getName(subject).getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException | IllegalArgumentException | IndexOutOfBoundsException none) {
            return "none";
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
