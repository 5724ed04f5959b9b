import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One Java client against one broker: each scenario prints "ok NAME", or "failed NAME: why". */
public final class Scenarios {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long PATIENCE_MS = 30_000;
    private static final int RECORDS = 300;

    private final String bootstrap;
    private final String prefix;
    private final Admin admin;

    private Scenarios(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    /** Arguments: bootstrap, a prefix for names, and the scenarios. */
    public static void main(String[] arguments) {
        Scenarios scenarios = new Scenarios(arguments[0], arguments[1]);
        Map<String, Callable<Void>> known = Map.of(
            "produce", scenarios::produceAndConsume,
            "compression", scenarios::compression,
            "headers", scenarios::headers,
            "classic-group", () -> scenarios.group("classic"),
            "consumer-group", () -> scenarios.group("consumer"),
            "pattern", scenarios::pattern,
            "transactions", scenarios::transactions,
            "admin", scenarios::administer);
        for (int index = 2; index < arguments.length; index++) {
            try {
                known.get(arguments[index]).call();
                System.out.println("ok " + arguments[index]);
            } catch (Throwable problem) {
                System.out.println("failed " + arguments[index] + ": " + problem);
                problem.printStackTrace();
            }
        }
        scenarios.admin.close(Duration.ofSeconds(5));
    }

    private String topic(String name, int partitions) throws Exception {
        String topic = prefix + "-" + name;
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        return topic;
    }

    private KafkaProducer<byte[], byte[]> producer(String codec) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", 5);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "auto.offset.reset", "earliest", "enable.auto.commit", false));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void send(String topic, String codec, int count, int partitions) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(codec)) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, number % partitions, bytes("key " + number), value(number)));
            }
            producer.flush();
        }
    }

    private static byte[] value(int number) {
        return bytes("value " + number + " ".repeat(number % 50));
    }

    private List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int count) {
        return readAll(topic, count, Map.of());
    }

    private List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int count, Map<String, Object> settings) {
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            await("all records of " + topic, () -> {
                consumer.poll(POLL).forEach(read::add);
                return read.size() >= count;
            });
        }
        check(read.size() == count, "read " + read.size() + " of " + count);
        return read;
    }

    private static void await(String what, BooleanSupplier hasCome) {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!hasCome.getAsBoolean()) {
            check(System.currentTimeMillis() < end, "waited in vain for " + what);
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private Void produceAndConsume() throws Exception {
        String topic = topic("plain", 1);
        try (KafkaProducer<byte[], byte[]> producer = producer("none")) {
            for (int number = 0; number < RECORDS; number++) {
                long offset = producer.send(new ProducerRecord<>(topic, 0, null, value(number))).get().offset();
                check(offset == number, "acknowledged at " + offset + " instead of " + number);
            }
        }
        List<ConsumerRecord<byte[], byte[]>> read = readAll(topic, RECORDS);
        for (int number = 0; number < RECORDS; number++) {
            check(java.util.Arrays.equals(read.get(number).value(), value(number)), "another value at " + number);
            check(read.get(number).key() == null, "a key at " + number);
        }
        return null;
    }

    private Void compression() throws Exception {
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            String topic = topic(codec, 1);
            send(topic, codec, RECORDS, 1);
            List<ConsumerRecord<byte[], byte[]>> read = readAll(topic, RECORDS);
            for (int number = 0; number < RECORDS; number++) {
                check(java.util.Arrays.equals(read.get(number).value(), value(number)), codec + " at " + number);
            }
        }
        return null;
    }

    private Void headers() throws Exception {
        String topic = topic("headers", 1);
        try (KafkaProducer<byte[], byte[]> producer = producer("none")) {
            ProducerRecord<byte[], byte[]> sent = 
                new ProducerRecord<>(topic, 0, (Long) 1_700_000_000_000L, bytes("k"), (byte[]) null);
            sent.headers().add("größe", bytes("ß")).add("none", null).add("empty", new byte[0]).add("größe", bytes("2"));
            producer.send(sent).get();
        }
        ConsumerRecord<byte[], byte[]> read = readAll(topic, 1).get(0);
        List<String> found = new ArrayList<>();
        read.headers().forEach(header -> found.add(
            header.key() + "=" + (header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8))));
        check(found.equals(List.of("größe=ß", "none=null", "empty=", "größe=2")), "headers " + found);
        check(read.value() == null && read.timestamp() == 1_700_000_000_000L, "another record " + read);
        return null;
    }

    /** Three transactions of ten records, of which the second is aborted and the third has an offset of a group. */
    private Void transactions() throws Exception {
        String topic = topic("transactions", 1);
        String group = prefix + "-group-transactions";
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", prefix + "-id");
        try (KafkaConsumer<byte[], byte[]> member = consumer(Map.of("group.id", group));
                KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int batch = 0; batch < 3; batch++) {
                producer.beginTransaction();
                for (int number = batch * 10; number < batch * 10 + 10; number++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, value(number)));
                }
                if (batch == 1) {
                    // Else the records that are not sent yet are dropped.
                    producer.flush();
                    producer.abortTransaction();
                    continue;
                }
                if (batch == 2) {
                    Map<TopicPartition, OffsetAndMetadata> offsets =
                        Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(7));
                    producer.sendOffsetsToTransaction(offsets, member.groupMetadata());
                }
                producer.commitTransaction();
            }
        }
        await("the offset of the transaction", () -> ends(group) == 7);
        List<ConsumerRecord<byte[], byte[]>> read = readAll(topic, 20, Map.of("isolation.level", "read_committed"));
        for (int index = 0; index < 20; index++) {
            int number = index < 10 ? index : index + 10;
            check(java.util.Arrays.equals(read.get(index).value(), value(number)), "another value at " + index);
        }
        return null;
    }

    /** Two members share four partitions, one leaves, the other takes over and commits; a third goes on from there. */
    private Void group(String protocol) throws Exception {
        String topic = topic(protocol, 4);
        String group = prefix + "-group-" + protocol;
        Map<String, Object> settings = new HashMap<>(Map.of("group.id", group, "group.protocol", protocol));
        send(topic, "none", RECORDS, 4);
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<byte[], byte[]> first = consumer(settings)) {
            first.subscribe(List.of(topic));
            await("the first to own all", () -> poll(first, seen) && first.assignment().size() == 4);
            try (KafkaConsumer<byte[], byte[]> second = consumer(settings)) {
                second.subscribe(List.of(topic));
                await("both to share", () -> poll(first, seen) && poll(second, seen)
                    && first.assignment().size() == 2 && second.assignment().size() == 2);
                Set<TopicPartition> both = new HashSet<>(first.assignment());
                both.addAll(second.assignment());
                check(both.size() == 4, "a partition has two owners: " + both);
                // A partition that changed its owner before a commit is read again by the new one.
                await("all records to be committed", () -> {
                    poll(first, seen);
                    poll(second, seen);
                    first.commitSync();
                    second.commitSync();
                    return ends(group) == RECORDS;
                });
                check(seen.size() == RECORDS, "seen " + seen.size());
                ConsumerGroupDescription told = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                check(told.members().size() == 2, "described with " + told.members());
            }
            await("the first to take over", () -> poll(first, seen) && first.assignment().size() == 4);
        }
        send(topic, "none", 8, 4);
        try (KafkaConsumer<byte[], byte[]> third = consumer(settings)) {
            third.subscribe(List.of(topic));
            List<Long> offsets = new ArrayList<>();
            await("only what is new", () -> {
                third.poll(POLL).forEach(record -> offsets.add(record.offset()));
                return offsets.size() >= 8;
            });
            check(offsets.size() == 8 && offsets.stream().allMatch(offset -> offset >= RECORDS / 4), "read " + offsets);
        }
        return null;
    }

    private static boolean poll(KafkaConsumer<byte[], byte[]> consumer, Set<String> seen) {
        consumer.poll(POLL).forEach(record -> seen.add(record.partition() + "/" + record.offset()));
        return true;
    }

    private long ends(String group) {
        try {
            return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(OffsetAndMetadata::offset).sum();
        } catch (Exception problem) {
            throw new AssertionError(problem);
        }
    }

    /** A subscription by pattern finds a topic that comes later. */
    private Void pattern() throws Exception {
        String early = topic("pattern-a", 1);
        Map<String, Object> settings = Map.of("group.id", prefix + "-group-pattern", "metadata.max.age.ms", 500);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.subscribe(Pattern.compile(prefix + "-pattern-.*"));
            Set<String> seen = new HashSet<>();
            await("the first topic", () -> poll(consumer, seen) && topics(consumer.assignment()).contains(early));
            String late = topic("pattern-b", 1);
            await("the later topic", () -> poll(consumer, seen) && topics(consumer.assignment()).contains(late));
        }
        return null;
    }

    private static Set<String> topics(Collection<TopicPartition> partitions) {
        Set<String> names = new TreeSet<>();
        partitions.forEach(partition -> names.add(partition.topic()));
        return names;
    }

    private Void administer() throws Exception {
        String topic = topic("admin", 2);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp retention = new AlterConfigOp(new ConfigEntry("retention.ms", "1234567"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(retention))).all().get();
        await("the setting", () -> "1234567".equals(config(resource, "retention.ms")));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        await("three partitions", () -> partitions(topic) == 3);
        send(topic, "none", 30, 3);
        TopicPartition partition = new TopicPartition(topic, 1);
        long low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4))).lowWatermarks()
            .get(partition).get().lowWatermark();
        check(low == 4, "low watermark " + low);
        check(offset(partition, OffsetSpec.earliest()) == 4, "earliest");
        check(offset(partition, OffsetSpec.latest()) == 10, "latest");
        check(offset(partition, OffsetSpec.maxTimestamp()) >= 0, "of the largest time");
        String group = prefix + "-group-admin";
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(partition, new OffsetAndMetadata(7, "note"));
        admin.alterConsumerGroupOffsets(group, offsets).all().get();
        check(ends(group) == 7, "altered to " + ends(group));
        check(admin.listConsumerGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group)), "listed");
        admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().isEmpty(), "offsets deleted");
        admin.alterConsumerGroupOffsets(group, offsets).all().get();
        admin.deleteConsumerGroups(List.of(group)).all().get();
        check(isRefused(() -> admin.deleteConsumerGroups(List.of(group)).all().get(), GroupIdNotFoundException.class), "gone");
        check(admin.describeCluster().nodes().get().size() == 1, "one node");
        check(!admin.describeLogDirs(List.of(admin.describeCluster().controller().get().id())).allDescriptions().get()
            .isEmpty(), "log directories");
        admin.deleteTopics(List.of(topic)).all().get();
        await("the topic's end", () -> isRefused(
            () -> admin.describeTopics(List.of(topic)).allTopicNames().get(), UnknownTopicOrPartitionException.class));
        return null;
    }

    private static boolean isRefused(Callable<?> call, Class<? extends Exception> kind) {
        try {
            call.call();
            return false;
        } catch (ExecutionException problem) {
            check(kind.isInstance(problem.getCause()), "refused with " + problem.getCause());
            return true;
        } catch (Exception problem) {
            throw new AssertionError(problem);
        }
    }

    private String config(ConfigResource resource, String name) {
        try {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
        } catch (Exception problem) {
            throw new AssertionError(problem);
        }
    }

    private int partitions(String topic) {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        } catch (Exception problem) {
            throw new AssertionError(problem);
        }
    }

    private long offset(TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }
}
