import java.io.FileWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Random;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends numbered records through the idempotent producer until SIGTERM, and writes down what became of each: the lines
 * of tests/history/operations.py.  Arguments: name, bootstrap, topic, count of partitions, file.
 */
public final class Sending {
    private static final int PAUSE_MS =
        Integer.parseInt(System.getenv().getOrDefault("OTTLA_TEST_SEND_PAUSE_MS", "10"));

    public static void main(String[] arguments) {
        UntilTerminated.run(isStopping -> send(arguments, isStopping));
    }

    private static void send(String[] arguments, BooleanSupplier isStopping) throws Exception {
        String name = arguments[0];
        String topic = arguments[2];
        int partitions = Integer.parseInt(arguments[3]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[1], "enable.idempotence", true, "acks", "all", "linger.ms", 2,
            "delivery.timeout.ms", 60_000, "request.timeout.ms", 10_000, "reconnect.backoff.max.ms", 200);
        Random random = new Random(name.hashCode());
        try (PrintWriter history = new PrintWriter(new FileWriter(arguments[4], StandardCharsets.UTF_8), true);
                KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; !isStopping.getAsBoolean(); ) {
                for (int left = 1 + random.nextInt(7); left > 0; left--, number++) {
                    send(producer, history, name, topic, random.nextInt(partitions), number);
                }
                Thread.sleep(PAUSE_MS);
            }
            producer.flush();
        }
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer, PrintWriter history, String name, String topic, int partition,
            int number) {
        String value = name + ":" + number;
        // The machine's monotonic clock, as the other programs have it.
        long invoked = System.nanoTime();
        line(history, name, invoked, "unknown", partition, value, -1);
        producer.send(
            new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8)),
            (metadata, problem) -> line(
                history, name, invoked, problem == null ? "ok" : "unknown", partition, value,
                problem == null ? metadata.offset() : -1));
    }

    private static void line(
            PrintWriter history, String name, long invoked, String outcome, int partition, String value, long offset) {
        long completed = outcome.equals("unknown") && offset < 0 ? invoked : System.nanoTime();
        history.printf(
            "[\"Send\", \"%s\", %d, %d, \"%s\", %d, \"%s\", %d]%n",
            name, invoked, completed, outcome, partition, value, offset);
    }
}
