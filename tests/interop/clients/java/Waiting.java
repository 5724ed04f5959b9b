import java.io.FileWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What tests/history/waiting_clients.py is for other libraries: waits for records or acknowledgements until SIGTERM,
 * with the client's own settings.  Arguments: role (reader, member, producer or asker), name, bootstrap, topic, count of
 * partitions, file.
 */
public final class Waiting {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration ASKED_WITHIN = Duration.ofSeconds(5);
    private static final int SEND_EVERY_MS = 100;
    private static final int ASK_EVERY_MS = 200;

    private final String name;
    private final String bootstrap;
    private final String topic;
    private final List<TopicPartition> places;
    private final PrintWriter history;
    private final BooleanSupplier isStopping;

    private Waiting(String[] arguments, PrintWriter history, BooleanSupplier isStopping) {
        this.name = arguments[1];
        this.bootstrap = arguments[2];
        this.topic = arguments[3];
        this.places = IntStream.range(0, Integer.parseInt(arguments[4]))
            .mapToObj(index -> new TopicPartition(topic, index)).collect(Collectors.toList());
        this.history = history;
        this.isStopping = isStopping;
    }

    public static void main(String[] arguments) {
        UntilTerminated.run(isStopping -> {
            try (PrintWriter history = new PrintWriter(new FileWriter(arguments[5], StandardCharsets.UTF_8), true)) {
                Waiting client = new Waiting(arguments, history, isStopping);
                switch (arguments[0]) {
                    case "reader" -> client.read(false);
                    case "member" -> client.read(true);
                    case "producer" -> client.send();
                    case "asker" -> client.ask();
                    default -> throw new IllegalArgumentException(arguments[0]);
                }
            }
        });
    }

    private KafkaConsumer<byte[], byte[]> consumer(boolean isMember) {
        Map<String, Object> settings =
            new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest"));
        if (isMember) {
            settings.put("group.id", name);
        }
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void read(boolean isMember) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(isMember)) {
            if (isMember) {
                consumer.subscribe(List.of(topic));
            } else {
                consumer.assign(places);
                consumer.seekToEnd(places);
            }
            while (!isStopping.getAsBoolean()) {
                long invoked = System.nanoTime();
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
                long completed = System.nanoTime();
                for (TopicPartition place : polled.partitions()) {
                    String records = polled.records(place).stream().map(Waiting::pair).collect(Collectors.joining(", "));
                    line("Poll", "%d, %d, %d, [%s]", invoked, completed, place.partition(), records);
                }
            }
        }
    }

    private static String pair(ConsumerRecord<byte[], byte[]> record) {
        return "[" + record.offset() + ", \"" + new String(record.value(), StandardCharsets.UTF_8) + "\"]";
    }

    private void ask() throws InterruptedException {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(false)) {
            while (!isStopping.getAsBoolean()) {
                Thread.sleep(ASK_EVERY_MS);
                for (TopicPartition place : places) {
                    long invoked = System.nanoTime();
                    try {
                        long offset = consumer.endOffsets(List.of(place), ASKED_WITHIN).get(place);
                        line("LatestOffset", "%d, %d, %d, %d", invoked, System.nanoTime(), place.partition(), offset);
                    } catch (KafkaException unanswered) {
                        unanswered.printStackTrace();
                    }
                }
            }
        }
    }

    private void send() throws InterruptedException {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; !isStopping.getAsBoolean(); ) {
                Thread.sleep(SEND_EVERY_MS);
                for (TopicPartition place : places) {
                    send(producer, place, name + ":" + number++);
                }
            }
        }
    }

    private void send(KafkaProducer<byte[], byte[]> producer, TopicPartition place, String value) {
        long invoked = System.nanoTime();
        sent(invoked, "unknown", place, value, -1);
        producer.send(
            new ProducerRecord<>(topic, place.partition(), null, value.getBytes(StandardCharsets.UTF_8)),
            (metadata, problem) -> sent(
                invoked, problem == null ? "ok" : "unknown", place, value, problem == null ? metadata.offset() : -1));
    }

    private void sent(long invoked, String outcome, TopicPartition place, String value, long offset) {
        long completed = System.nanoTime();
        line("Send", "%d, %d, \"%s\", %d, \"%s\", %d", invoked, completed, outcome, place.partition(), value, offset);
    }

    private synchronized void line(String kind, String format, Object... values) {
        history.println("[\"" + kind + "\", \"" + name + "\", " + String.format(format, values) + "]");
    }
}
