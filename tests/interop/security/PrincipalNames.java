import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Reads lines of two fields with a tab between, in base64: rules, and a distinguished name in DER. Writes for each line
 * the name as Java's text, and the principal's name to which Apache Kafka's rules map it, in base64; "-" when no rule
 * matches.
 */
public final class PrincipalNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            String name = new X500Principal(decoded(fields[1])).getName();
            String rules = new String(decoded(fields[0]), StandardCharsets.UTF_8);
            String mapped;
            try {
                mapped = encoded(SslPrincipalMapper.fromRules(rules).getName(name));
            } catch (java.io.IOException error) {
                mapped = "-";
            }
            System.out.println(encoded(name) + "\t" + mapped);
        }
    }

    private static byte[] decoded(String text) {
        return Base64.getDecoder().decode(text);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
