import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies a topic to another one with the exactly-once sink until it is killed.
 * Arguments: bootstrap, input, output, directory of checkpoints, how transactional ids are chosen (INCREMENTING or
 * POOLING), and the checkpoint to continue from, if any.
 */
public final class Copy {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("parallelism.default", "2");
        configuration.setString("execution.checkpointing.interval", "500ms");
        configuration.setString("execution.checkpointing.dir", "file://" + arguments[3]);
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "1000");
        configuration.setString("restart-strategy.fixed-delay.delay", "500ms");
        configuration.setString("taskmanager.memory.network.min", "16mb");
        configuration.setString("taskmanager.memory.network.max", "16mb");
        configuration.setString("taskmanager.memory.managed.size", "16mb");
        if (arguments.length > 5) {
            configuration.setString("execution.state-recovery.path", arguments[5]);
        }
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics(arguments[1])
            .setGroupId("flink-copy")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic(arguments[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-copy-" + arguments[2])
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[4]))
            // Flink's own default, an hour, is beyond the longest that a broker allows.
            .setProperty("transaction.timeout.ms", "60000")
            .build();
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "input").uid("input")
            .sinkTo(sink).uid("output");
        environment.execute("copy");
    }
}
