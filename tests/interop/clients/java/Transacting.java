import java.io.FileWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What tests/transactions_history has in worker.py, working_librdkafka.py and reading_librdkafka.py, through Java's
 * client: where brokers have finalized transaction.version 2, its transactions are those of KIP-890's second part.
 * Arguments: worker, name, bootstrap, topic, group, protocol, file; or reader, name, bootstrap, topic, count of
 * partitions, file.
 */
public final class Transacting {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration CALL = Duration.ofSeconds(5);
    private static final long READ_TO_THE_END_MS = 2_000;
    private static final int PARTITIONS_COUNT = 6;
    private static final int IDS_COUNT = 4;
    private static final int GUESTS_MAX = 4;
    private static final int OPEN_MS = 100;
    private static final int PAUSE_MS = 50;
    private static final double ABORT_SHARE = 0.1;
    private static final double FLUSH_SHARE = 0.5;
    private static final int[] INPUTS_MAX = {10, 100, 2_000};
    private static final int[] TIMEOUTS_MS = {3_000, 10_000, 30_000};
    private static final String GUEST_MARK = "~";

    /** The producer can do nothing any more: another one must take its place. */
    private static final class Ended extends Exception {
        final boolean isFenced;

        Ended(RuntimeException cause) {
            super(cause.toString());
            isFenced = cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException;
        }
    }

    /** One transaction, and what is known of it. */
    private static final class Planned {
        final long started = System.nanoTime();
        final String name;
        final Map<Integer, Long> consumed;
        final String inputs;
        final String states;
        final List<Integer> partitions = new ArrayList<>();
        final List<String> values = new ArrayList<>();
        final long[] offsets;

        Planned(String name, Map<Integer, Long> next, Map<Integer, Long> consumed, Map<Integer, String> known,
                List<Integer> guests) {
            this.name = name;
            this.consumed = consumed;
            inputs = consumed.entrySet().stream()
                .map(each -> "[" + each.getKey() + ", " + next.get(each.getKey()) + ", " + each.getValue() + "]")
                .collect(Collectors.joining(", ", "[", "]"));
            states = consumed.keySet().stream()
                .map(each -> "[" + each + ", \"" + known.getOrDefault(each, "") + "\"]")
                .collect(Collectors.joining(", ", "[", "]"));
            for (int partition : consumed.keySet()) {
                partitions.add(partition);
                values.add(name + "#" + values.size());
            }
            for (int partition : guests) {
                partitions.add(partition);
                values.add(name + "#" + values.size() + GUEST_MARK);
            }
            offsets = new long[values.size()];
            Arrays.fill(offsets, -1);
        }

        synchronized void acknowledged(int place, long offset) {
            offsets[place] = offset;
        }

        synchronized String results() {
            return IntStream.range(0, values.size())
                .mapToObj(each -> "[" + partitions.get(each) + ", \"" + values.get(each) + "\", " + offsets[each] + "]")
                .collect(Collectors.joining(", ", "[", "]"));
        }
    }

    private final String name;
    private final String bootstrap;
    private final String topic;
    private final String results;
    private final PrintWriter history;
    private final BooleanSupplier isStopping;
    private final Random random;

    private Transacting(String[] arguments, PrintWriter history, BooleanSupplier isStopping) {
        name = arguments[1];
        bootstrap = arguments[2];
        topic = arguments[3];
        results = topic + "-results";
        random = new Random(name.hashCode());
        this.history = history;
        this.isStopping = isStopping;
    }

    public static void main(String[] arguments) {
        UntilTerminated.run(isStopping -> {
            String file = arguments[arguments.length - 1];
            try (PrintWriter history = new PrintWriter(new FileWriter(file, StandardCharsets.UTF_8), true)) {
                Transacting client = new Transacting(arguments, history, isStopping);
                switch (arguments[0]) {
                    case "worker" -> client.new Worker(arguments[4]).run();
                    case "reader" -> client.read(Integer.parseInt(arguments[4]));
                    default -> throw new IllegalArgumentException(arguments[0]);
                }
            }
        });
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", isolation, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "request.timeout.ms", 5_000, "default.api.timeout.ms", 5_000));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void read(int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_committed", Map.of())) {
            List<TopicPartition> places =
                IntStream.range(0, count).mapToObj(each -> new TopicPartition(results, each)).toList();
            consumer.assign(places);
            consumer.seekToBeginning(places);
            while (!isStopping.getAsBoolean()) {
                long invoked = System.nanoTime();
                record("CommittedRead", name, invoked, byPlace(consumer.poll(POLL)));
            }
        }
    }

    private static Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> byPlace(
            ConsumerRecords<byte[], byte[]> polled) {
        return polled.partitions().stream().collect(Collectors.toMap(place -> place, polled::records));
    }

    private void record(
            String kind, String process, long invoked, Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> polled) {
        long completed = System.nanoTime();
        polled.forEach((place, of) -> {
            String records = of.stream()
                .map(each -> "[" + each.offset() + ", \"" + value(each) + "\"]").collect(Collectors.joining(", "));
            line(kind, process, "%d, %d, %d, [%s]", invoked, completed, place.partition(), records);
        });
    }

    private static String value(ConsumerRecord<byte[], byte[]> record) {
        return new String(record.value(), StandardCharsets.UTF_8);
    }

    private synchronized void line(String kind, String process, String format, Object... values) {
        history.println("[\"" + kind + "\", \"" + process + "\", " + String.format(format, values) + "]");
    }

    private final class Worker {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final KafkaConsumer<byte[], byte[]> lists = consumer("read_committed", Map.of());
        private final KafkaConsumer<byte[], byte[]> watermarks = consumer("read_uncommitted", Map.of());
        private final int timeoutMs = TIMEOUTS_MS[random.nextInt(TIMEOUTS_MS.length)];
        // Of the partitions that are positioned: the next input.
        private final Map<Integer, Long> next = new HashMap<>();
        private final Map<Integer, Long> listsNext = new HashMap<>();
        private final Map<Integer, String> states = new HashMap<>();
        private KafkaProducer<byte[], byte[]> producer;
        private String transactionalId;
        private int fencedCount = 0;
        private int number = 0;
        private long assignment = 0;
        private Set<Integer> assigned = Set.of();
        // Of this assignment: a later one without its partitions must not commit their offsets.
        private ConsumerGroupMetadata metadata;

        Worker(String group) {
            int member = Integer.parseInt(name.substring("member".length()).split("-", 2)[0]);
            transactionalId = topic + "-" + member % IDS_COUNT;
            consumer = consumer("read_committed", Map.of(
                "group.id", group, "session.timeout.ms", 2_000, "heartbeat.interval.ms", 500,
                "max.poll.records", INPUTS_MAX[INPUTS_MAX.length - 1],
                "partition.assignment.strategy", RangeAssignor.class.getName()));
        }

        void run() throws InterruptedException {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> given) {
                    reassigned(given);
                    // Nothing is read before it is positioned.
                    consumer.pause(given);
                    metadata = consumer.groupMetadata();
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> taken) {
                    reassigned(List.of());
                }
            });
            renew(false);
            while (!isStopping.getAsBoolean()) {
                try {
                    turn();
                } catch (Ended ended) {
                    renew(ended.isFenced);
                }
                Thread.sleep(random.nextInt(PAUSE_MS));
            }
            producer.close(CALL);
            consumer.close();
            lists.close();
            watermarks.close();
        }

        private void reassigned(Collection<TopicPartition> given) {
            assignment++;
            assigned = given.stream().map(TopicPartition::partition).collect(Collectors.toSet());
            next.clear();
        }

        private void turn() throws Ended, InterruptedException {
            long invoked = System.nanoTime();
            long before = assignment;
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
            if (!next.keySet().equals(assigned)) {
                restore();
            } else if (assignment == before && !polled.isEmpty()) {
                int limit = INPUTS_MAX[random.nextInt(INPUTS_MAX.length)];
                Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> taken = byPlace(polled);
                taken.replaceAll((place, records) -> records.subList(0, Math.min(limit, records.size())));
                record("Poll", name, invoked, taken);
                Map<Integer, Long> consumed = new TreeMap<>();
                taken.forEach((place, records) -> {
                    long end = records.get(records.size() - 1).offset() + 1;
                    if (records.size() < polled.records(place).size()) {
                        // The rest is for the next transaction.
                        consumer.seek(place, end);
                    }
                    consumed.put(place.partition(), end);
                });
                transact(consumed);
            }
        }

        private void rewind() {
            next.clear();
            consumer.pause(consumer.assignment());
        }

        /** The offsets first, then the lists up to the present high watermarks; tried again at the next turn. */
        private void restore() {
            try {
                long invoked = System.nanoTime();
                Set<TopicPartition> places = new HashSet<>(consumer.assignment());
                // A read_committed consumer requires stable offsets.
                Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(places, CALL);
                long completed = System.nanoTime();
                for (TopicPartition place : places) {
                    OffsetAndMetadata offset = found.get(place);
                    long shown = offset == null ? -1 : offset.offset();
                    line("Committed", name, "%d, %d, %d, %d", invoked, completed, place.partition(), shown);
                }
                if (!readLists()) {
                    return;
                }
                for (TopicPartition place : places) {
                    OffsetAndMetadata offset = found.get(place);
                    long from = offset == null ? 0 : offset.offset();
                    line("Positioned", name, "%d, %d, -1", System.nanoTime(), place.partition());
                    consumer.seek(place, from);
                    next.put(place.partition(), from);
                }
                consumer.resume(places);
            } catch (KafkaException failure) {
                failure.printStackTrace();
            }
        }

        private boolean readLists() {
            Map<TopicPartition, Long> ends = watermarks.endOffsets(
                assigned.stream().map(each -> new TopicPartition(results, each)).toList(), CALL);
            lists.assign(ends.keySet());
            ends.keySet().forEach(each -> lists.seek(each, listsNext.getOrDefault(each.partition(), 0L)));
            long giveUp = System.currentTimeMillis() + READ_TO_THE_END_MS;
            boolean isComplete = isAt(ends);
            while (!isComplete && System.currentTimeMillis() < giveUp) {
                long invoked = System.nanoTime();
                ConsumerRecords<byte[], byte[]> polled = lists.poll(POLL);
                record("CommittedRead", name + ".state", invoked, byPlace(polled));
                for (ConsumerRecord<byte[], byte[]> each : polled) {
                    if (!value(each).endsWith(GUEST_MARK)) {
                        states.put(each.partition(), value(each));
                    }
                }
                // Also beyond markers and what was aborted.
                ends.keySet().forEach(each -> listsNext.put(each.partition(), lists.position(each, CALL)));
                isComplete = isAt(ends);
            }
            lists.unsubscribe();
            return isComplete;
        }

        private boolean isAt(Map<TopicPartition, Long> ends) {
            return ends.entrySet().stream()
                .allMatch(each -> listsNext.getOrDefault(each.getKey().partition(), 0L) >= each.getValue());
        }

        private void transact(Map<Integer, Long> consumed) throws Ended, InterruptedException {
            List<Integer> guests = IntStream.range(0, random.nextInt(GUESTS_MAX + 1))
                .mapToObj(each -> random.nextInt(PARTITIONS_COUNT)).toList();
            Planned planned = new Planned(name + ":" + number++, next, consumed, states, guests);
            boolean isRequested = false;
            boolean isIntended = random.nextDouble() < ABORT_SHARE;
            settle(planned, "failed", "");
            try {
                send(planned);
                if (isIntended) {
                    abort(planned, false, "intended");
                    return;
                }
                isRequested = true;
                settle(planned, "unknown", "");
                commit();
            } catch (ProducerFencedException | IllegalStateException fatal) {
                rewind();
                settle(planned, isRequested ? "unknown" : "failed", fatal.toString());
                throw new Ended(fatal);
            } catch (KafkaException failure) {
                abort(planned, isRequested, failure.toString());
                return;
            }
            settle(planned, "ok", "");
            next.putAll(consumed);
            for (int place = 0; place < consumed.size(); place++) {
                states.put(planned.partitions.get(place), planned.values.get(place));
            }
        }

        private void send(Planned planned) throws InterruptedException {
            producer.beginTransaction();
            for (int each = 0; each < planned.values.size(); each++) {
                int place = each;
                byte[] value = planned.values.get(each).getBytes(StandardCharsets.UTF_8);
                producer.send(
                    new ProducerRecord<>(results, planned.partitions.get(each), null, value),
                    (sent, problem) -> planned.acknowledged(place, problem == null ? sent.offset() : -1));
            }
            if (random.nextDouble() < FLUSH_SHARE) {
                producer.flush();
                Thread.sleep(random.nextInt(OPEN_MS));
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            planned.consumed.forEach(
                (partition, end) -> offsets.put(new TopicPartition(topic, partition), new OffsetAndMetadata(end)));
            producer.sendOffsetsToTransaction(offsets, metadata);
        }

        /** Repeated after a time-out: the client continues what it has started. */
        private void commit() {
            while (true) {
                try {
                    producer.commitTransaction();
                    return;
                } catch (TimeoutException late) {
                    late.printStackTrace();
                }
            }
        }

        private void abort(Planned planned, boolean isRequested, String reason) throws Ended {
            rewind();
            while (true) {
                try {
                    producer.abortTransaction();
                    settle(planned, "failed", reason);
                    return;
                } catch (TimeoutException late) {
                    late.printStackTrace();
                } catch (KafkaException | IllegalStateException fatal) {
                    settle(planned, isRequested ? "unknown" : "failed", reason + ", then " + fatal);
                    throw new Ended(fatal);
                }
            }
        }

        private void settle(Planned planned, String outcome, String error) {
            String shown = error.replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            line("Transaction", name, "%d, %d, \"%s\", \"%s\", %s, %s, %s, \"%s\"", planned.started, System.nanoTime(),
                outcome, planned.name, planned.inputs, planned.states, planned.results(), shown);
        }

        /** With a fresh transactional id after it was fenced, so that two do not fence each other in turn. */
        private void renew(boolean isFenced) {
            rewind();
            boolean wasFenced = isFenced;
            while (!isStopping.getAsBoolean()) {
                if (producer != null) {
                    producer.close(Duration.ZERO);
                }
                if (wasFenced) {
                    transactionalId = name + "-" + ++fencedCount;
                }
                producer = new KafkaProducer<>(Map.of(
                    "bootstrap.servers", bootstrap, "transactional.id", transactionalId, "transaction.timeout.ms", timeoutMs,
                    "request.timeout.ms", 2_500, "delivery.timeout.ms", 10_000, "max.block.ms", 5_000),
                    new ByteArraySerializer(), new ByteArraySerializer());
                try {
                    initialise();
                    return;
                } catch (KafkaException | IllegalStateException failure) {
                    failure.printStackTrace();
                    wasFenced = failure instanceof ProducerFencedException;
                }
            }
        }

        private void initialise() {
            while (true) {
                try {
                    producer.initTransactions();
                    return;
                } catch (TimeoutException late) {
                    if (isStopping.getAsBoolean()) {
                        throw late;
                    }
                }
            }
        }
    }
}
