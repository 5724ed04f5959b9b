import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.MessageProperties;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * RabbitMQ's own client and a classic queue. Durable: a durable queue, persistent messages, publisher confirms. Not
 * durable: a transient queue and messages; with a batch of 1 still confirmed, else published without waiting at all.
 */
final class RabbitLoad implements Load.Client {
    private static final int IN_FLIGHT = 5;
    private static final int PREFETCH = 1000;
    private final String queue;
    private final Connection connection;
    private final Channel channel;

    RabbitLoad(String address, String queue) throws Exception {
        this.queue = queue;
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(address.split(":")[0]);
        factory.setPort(Integer.parseInt(address.split(":")[1]));
        connection = factory.newConnection();
        channel = connection.createChannel();
    }

    @Override
    public Load.Producing producer(int batch, boolean durable) throws Exception {
        channel.queueDeclare(queue, durable, false, false, null);
        boolean isConfirmed = durable || batch == 1;
        return isConfirmed ? new Confirmed(IN_FLIGHT * batch, properties(durable)) : new Unconfirmed(properties(durable));
    }

    private static AMQP.BasicProperties properties(boolean durable) {
        return durable ? MessageProperties.MINIMAL_PERSISTENT_BASIC : MessageProperties.MINIMAL_BASIC;
    }

    private final class Confirmed implements Load.Producing {
        private final int window;
        private final Semaphore free;
        private final AMQP.BasicProperties properties;
        private final ConcurrentSkipListSet<Long> open = new ConcurrentSkipListSet<>();
        private volatile boolean isRefused;

        Confirmed(int window, AMQP.BasicProperties properties) throws Exception {
            this.window = window;
            this.free = new Semaphore(window);
            this.properties = properties;
            channel.confirmSelect();
            channel.addConfirmListener(this::confirm, (tag, multiple) -> {
                isRefused = true;
                confirm(tag, multiple);
            });
        }

        private void confirm(long tag, boolean multiple) {
            int count;
            if (multiple) {
                var confirmed = open.headSet(tag, true);
                count = confirmed.size();
                confirmed.clear();
            } else {
                count = open.remove(tag) ? 1 : 0;
            }
            Load.ACKNOWLEDGED.addAndGet(count);
            free.release(count);
        }

        @Override
        public void send(byte[] value) throws Exception {
            if (!free.tryAcquire(60, TimeUnit.SECONDS)) throw new IllegalStateException("nothing confirmed for 60 s");
            if (isRefused) throw new IllegalStateException("the broker refused a message");
            open.add(channel.getNextPublishSeqNo());
            channel.basicPublish("", queue, properties, value);
        }

        @Override
        public void drain() throws Exception {
            if (!free.tryAcquire(window, 60, TimeUnit.SECONDS)) throw new IllegalStateException("not confirmed");
            if (isRefused) throw new IllegalStateException("the broker refused a message");
        }

        @Override
        public void close() throws Exception {
            connection.close();
        }
    }

    private final class Unconfirmed implements Load.Producing {
        private final AMQP.BasicProperties properties;

        Unconfirmed(AMQP.BasicProperties properties) {
            this.properties = properties;
        }

        @Override
        public void send(byte[] value) throws Exception {
            channel.basicPublish("", queue, properties, value);
            Load.ACKNOWLEDGED.incrementAndGet();
        }

        @Override
        public void drain() throws Exception {
            // The channel's requests are served in their order: this one is answered after all publishes.
            channel.queueDeclarePassive(queue);
        }

        @Override
        public void close() throws Exception {
            connection.close();
        }
    }

    /** Durable: acknowledged by the consumer, every 500 messages at once. Not durable: acknowledged as they are sent. */
    @Override
    public Load.Consuming consumer(boolean durable) throws Exception {
        AtomicInteger received = new AtomicInteger();
        channel.basicQos(PREFETCH);
        long[] unacknowledged = {0};
        channel.basicConsume(queue, !durable, (tag, delivery) -> {
            received.incrementAndGet();
            if (durable && ++unacknowledged[0] % (PREFETCH / 2) == 0)
                channel.basicAck(delivery.getEnvelope().getDeliveryTag(), true);
        }, tag -> {});
        return new Load.Consuming() {
            @Override
            public int receive() throws Exception {
                Thread.sleep(1);
                return received.getAndSet(0);
            }

            @Override
            public void close() throws Exception {
                connection.close();
            }
        };
    }

    @Override
    public long delete() throws Exception {
        return channel.queueDelete(queue).getMessageCount();
    }
}
