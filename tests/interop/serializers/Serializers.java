import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaCompatibility.SchemaCompatibilityType;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;

/** Answers each line of standard input by one of standard output; the fields of a line are separated by tabs.
 *
 *  serialize TOPIC SCHEMA JSON     base64 of the value, by Confluent's serializer
 *  deserialize TOPIC BASE64        the record as JSON, by Confluent's deserializer
 *  canonical SCHEMA                its text as Confluent's registry keeps it
 *  reads READER WRITER             whether Avro says that the reader can read what the writer writes
 */
public class Serializers {
    private static final Base64.Encoder ENCODER = Base64.getEncoder();

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("schema.registry.url", arguments[0]);
        KafkaAvroSerializer serializer = new KafkaAvroSerializer();
        serializer.configure(config, false);
        KafkaAvroDeserializer deserializer = new KafkaAvroDeserializer();
        deserializer.configure(config, false);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            String answer;
            try {
                switch (fields[0]) {
                    case "serialize":
                        Schema schema = new Schema.Parser().parse(fields[2]);
                        GenericDatumReader<GenericRecord> reader = new GenericDatumReader<>(schema);
                        GenericRecord record = reader.read(null, DecoderFactory.get().jsonDecoder(schema, fields[3]));
                        answer = ENCODER.encodeToString(serializer.serialize(fields[1], record));
                        break;
                    case "deserialize":
                        byte[] data = Base64.getDecoder().decode(fields[2]);
                        answer = String.valueOf(deserializer.deserialize(fields[1], data));
                        break;
                    case "canonical":
                        answer = new AvroSchema(fields[1]).canonicalString();
                        break;
                    case "reads":
                        Schema newer = new Schema.Parser().parse(fields[1]);
                        Schema older = new Schema.Parser().parse(fields[2]);
                        answer = String.valueOf(
                            SchemaCompatibility.checkReaderWriterCompatibility(newer, older).getType()
                                == SchemaCompatibilityType.COMPATIBLE);
                        break;
                    default:
                        answer = "unknown";
                }
            } catch (Exception error) {
                answer = ("error " + error + " caused by " + error.getCause()).replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
