import java.io.FileWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group until SIGTERM, which writes down what it is given, reads and commits: the lines of
 * tests/history/operations.py.  Arguments: name, bootstrap, topic, group, protocol (range, cooperative-sticky or
 * consumer), file.  Any error but that of a commit which came too late ends it.
 */
public final class Consuming implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final double COMMIT_SHARE = 0.5;
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final String name;
    private final boolean tellsGeneration;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final PrintWriter history;
    private final Random random;
    private final Set<TopicPartition> newlyGiven = new HashSet<>();
    // What a commit would say: the offset behind what was read.
    private final Map<TopicPartition, Long> next = new HashMap<>();

    private Consuming(String name, boolean tellsGeneration, KafkaConsumer<byte[], byte[]> consumer, PrintWriter history) {
        this.name = name;
        this.tellsGeneration = tellsGeneration;
        this.consumer = consumer;
        this.history = history;
        this.random = new Random(name.hashCode());
    }

    public static void main(String[] arguments) {
        UntilTerminated.run(isStopping -> consume(arguments, isStopping));
    }

    private static void consume(String[] arguments, BooleanSupplier isStopping) throws Exception {
        String topic = arguments[2];
        String protocol = arguments[4];
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", arguments[1], "group.id", arguments[3], "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "reconnect.backoff.max.ms", 200));
        if (protocol.equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(protocol));
            settings.put("session.timeout.ms", 2_000);
            settings.put("heartbeat.interval.ms", 500);
        }
        try (PrintWriter history = new PrintWriter(new FileWriter(arguments[5], StandardCharsets.UTF_8), true);
                KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            // An epoch of the newer protocol is the member's own, not that of its assignment.
            Consuming member = new Consuming(arguments[0], !protocol.equals("consumer"), consumer, history);
            consumer.subscribe(List.of(topic), member);
            while (!isStopping.getAsBoolean()) {
                member.poll();
                member.readCommitted();
                if (member.random.nextDouble() < COMMIT_SHARE) {
                    member.commit(new ArrayList<>(member.next.keySet()));
                }
            }
        }
    }

    private void poll() {
        long invoked = System.nanoTime();
        ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
        long completed = System.nanoTime();
        for (TopicPartition place : polled.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> records = polled.records(place);
            String read = records.stream()
                .map(each -> "[" + each.offset() + ", \"" + new String(each.value(), StandardCharsets.UTF_8) + "\"]")
                .collect(Collectors.joining(", "));
            line("Poll", "%d, %d, %d, [%s]", invoked, completed, place.partition(), read);
            next.put(place, records.get(records.size() - 1).offset() + 1);
            long asked = System.nanoTime();
            OptionalLong lag = consumer.currentLag(place);
            if (lag.isPresent()) {
                long highWatermark = consumer.position(place) + lag.getAsLong();
                line("Watermark", "%d, %d, %d, %d", asked, System.nanoTime(), place.partition(), highWatermark);
            }
        }
    }

    private void readCommitted() {
        if (newlyGiven.isEmpty()) {
            return;
        }
        long invoked = System.nanoTime();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(new HashSet<>(newlyGiven));
        long completed = System.nanoTime();
        for (TopicPartition place : newlyGiven) {
            OffsetAndMetadata found = committed.get(place);
            line("Committed", "%d, %d, %d, %d", invoked, completed, place.partition(), found == null ? -1 : found.offset());
        }
        newlyGiven.clear();
    }

    private void commit(Collection<TopicPartition> partitions) {
        for (TopicPartition place : partitions) {
            Long offset = next.get(place);
            if (offset == null) {
                continue;
            }
            long invoked = System.nanoTime();
            String outcome = "ok";
            try {
                consumer.commitSync(Map.of(place, new OffsetAndMetadata(offset)));
            } catch (CommitFailedException | RebalanceInProgressException refused) {
                outcome = "failed";
            }
            line("Commit", "%d, %d, \"%s\", %d, %d", invoked, System.nanoTime(), outcome, place.partition(), offset);
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> given) {
        int generation = tellsGeneration ? consumer.groupMetadata().generationId() : -1;
        for (TopicPartition place : given) {
            line("Positioned", "%d, %d, %d", System.nanoTime(), place.partition(), generation);
            newlyGiven.add(place);
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> taken) {
        commit(taken);
        onPartitionsLost(taken);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> lost) {
        for (TopicPartition place : lost) {
            line("Revoked", "%d, %d", System.nanoTime(), place.partition());
            next.remove(place);
            newlyGiven.remove(place);
        }
    }

    private void line(String kind, String format, Object... values) {
        history.println("[\"" + kind + "\", \"" + name + "\", " + String.format(format, values) + "]");
    }
}
