import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The program: announces paid orders. */
final class Orders {
    private Orders() {}

    static void pay(Producer<String, String> producer, String topic, String order)
            throws ExecutionException, InterruptedException {
        String value = "{\"order\": \"" + order + "\", \"state\": \"paid\"}";
        producer.send(new ProducerRecord<>(topic, order, value)).get();
    }
}
