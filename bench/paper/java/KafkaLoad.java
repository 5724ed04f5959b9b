import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's own client, for Ottla and Apache Kafka alike; durability is the topic's setting. */
final class KafkaLoad implements Load.Client {
    /** A record of 200 bytes without key takes 208 in its batch; the client asks for 61 + 61 more before it adds one. */
    private static final int RECORD_BYTES = 208;

    private static final int OVERHEAD_BYTES = 61 + 61;
    /** What waits in the client: enough that none of the five on their way is late, little enough to drain soon. */
    private static final int QUEUED_BATCHES = 200;

    private final String bootstrap;
    private final TopicPartition partition;

    KafkaLoad(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.partition = new TopicPartition(topic, 0);
    }

    @Override
    public Load.Producing producer(int batch, boolean durable) {
        int batchBytes = batch * RECORD_BYTES + OVERHEAD_BYTES;
        Map<String, Object> configuration = Map.of(
                "bootstrap.servers", bootstrap,
                "acks", "all",
                "max.in.flight.requests.per.connection", 5,
                "batch.size", batch == 1 ? 0 : batchBytes,
                "buffer.memory", QUEUED_BATCHES * batchBytes,
                "linger.ms", batch == 1 ? 0 : 5);
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(configuration, new ByteArraySerializer(), new ByteArraySerializer());
        return new Load.Producing() {
            private volatile Exception failure;

            @Override
            public void send(byte[] value) throws Exception {
                if (failure != null) throw failure;
                producer.send(new ProducerRecord<>(partition.topic(), 0, null, value), (metadata, error) -> {
                    if (error != null) failure = error;
                    else Load.ACKNOWLEDGED.incrementAndGet();
                });
            }

            @Override
            public void drain() throws Exception {
                producer.flush();
                if (failure != null) throw failure;
            }

            @Override
            public void close() {
                producer.close(Duration.ofSeconds(10));
            }
        };
    }

    /** Reads to the end and begins again. */
    @Override
    public Load.Consuming consumer(boolean durable) {
        Map<String, Object> configuration = Map.of(
                "bootstrap.servers", bootstrap,
                "enable.auto.commit", false,
                "max.poll.records", 1000,
                "max.partition.fetch.bytes", 1000 * Load.VALUE_BYTES);
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(configuration, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        return new Load.Consuming() {
            @Override
            public int receive() {
                int count = consumer.poll(Duration.ofSeconds(1)).count();
                if (consumer.position(partition) >= end) consumer.seekToBeginning(List.of(partition));
                return count;
            }

            @Override
            public void close() {
                consumer.close();
            }
        };
    }

    @Override
    public long delete() {
        throw new UnsupportedOperationException("topics are made and deleted by the benchmark itself");
    }
}
