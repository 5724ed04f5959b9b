import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A test without a framework: it ends with status 1 when it fails.  A method of JUnit has the same lines. */
final class OrdersTest {
    private static final String BOOTSTRAP = System.getenv("KAFKA_BOOTSTRAP_SERVERS");
    // The broker has it: ottla testing run --topic orders:3 -- java ... OrdersTest
    private static final String TOPIC = "orders";

    public static void main(String[] arguments) throws Exception {
        try (var producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", BOOTSTRAP), new StringSerializer(), new StringSerializer())) {
            Orders.pay(producer, TOPIC, "7");
        }

        Map<String, Object> settings = Map.of(
                "bootstrap.servers", BOOTSTRAP, "group.id", "orders-test", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(TOPIC));
            ConsumerRecord<String, String> found = first(consumer);
            check(found.key().equals("7"), found.key());
            check(found.value().equals("{\"order\": \"7\", \"state\": \"paid\"}"), found.value());
        }
        System.out.println("ok");
    }

    private static ConsumerRecord<String, String> first(KafkaConsumer<String, String> consumer) {
        long end = System.nanoTime() + Duration.ofMinutes(1).toNanos();
        while (System.nanoTime() < end) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty()) {
                return records.iterator().next();
            }
        }
        throw new AssertionError("no record after a minute");
    }

    private static void check(boolean isRight, String found) {
        if (!isRight) {
            throw new AssertionError(found);
        }
    }
}
