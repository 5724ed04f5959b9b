import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQMessageProducer;
import org.apache.activemq.AsyncCallback;
import org.apache.activemq.command.ActiveMQQueue;

/**
 * ActiveMQ's own client (JMS over OpenWire) and a queue. A batch of 1: each message is acknowledged by itself, five on
 * their way. More: persistent messages in transactions of a batch each; others are sent without waiting.
 */
final class JmsLoad implements Load.Client {
    private static final int IN_FLIGHT = 5;
    private static final int PREFETCH = 1000;
    private final ActiveMQConnection connection;
    private final ActiveMQQueue queue;

    JmsLoad(String address, String name) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory("tcp://" + address);
        factory.setWatchTopicAdvisories(false);
        connection = (ActiveMQConnection) factory.createConnection();
        queue = new ActiveMQQueue(name + "?consumer.prefetchSize=" + PREFETCH);
        connection.start();
    }

    @Override
    public Load.Producing producer(int batch, boolean durable) throws Exception {
        boolean isTransacted = durable && batch > 1;
        Session session = connection.createSession(isTransacted, isTransacted ? 0 : Session.AUTO_ACKNOWLEDGE);
        ActiveMQMessageProducer producer = (ActiveMQMessageProducer) session.createProducer(queue);
        producer.setDeliveryMode(durable ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
        if (isTransacted) return new Transacted(session, producer, batch);
        return new Single(session, producer, batch == 1);
    }

    private abstract class Sending implements Load.Producing {
        final Session session;
        final ActiveMQMessageProducer producer;

        Sending(Session session, ActiveMQMessageProducer producer) {
            this.session = session;
            this.producer = producer;
        }

        BytesMessage message(byte[] value) throws JMSException {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(value);
            return message;
        }

        @Override
        public void close() throws JMSException {
            connection.close();
        }
    }

    private final class Transacted extends Sending {
        private final int batch;
        private int open;

        Transacted(Session session, ActiveMQMessageProducer producer, int batch) {
            super(session, producer);
            this.batch = batch;
        }

        @Override
        public void send(byte[] value) throws JMSException {
            producer.send(message(value));
            if (++open == batch) drain();
        }

        @Override
        public void drain() throws JMSException {
            if (open == 0) return;
            session.commit();
            Load.ACKNOWLEDGED.addAndGet(open);
            open = 0;
        }
    }

    private final class Single extends Sending {
        private final boolean isAcknowledged;
        private final Semaphore free = new Semaphore(IN_FLIGHT);
        private volatile JMSException failure;

        Single(Session session, ActiveMQMessageProducer producer, boolean isAcknowledged) {
            super(session, producer);
            this.isAcknowledged = isAcknowledged;
        }

        @Override
        public void send(byte[] value) throws Exception {
            if (!isAcknowledged) {
                producer.send(message(value));
                Load.ACKNOWLEDGED.incrementAndGet();
                return;
            }
            if (!free.tryAcquire(60, TimeUnit.SECONDS)) throw new IllegalStateException("nothing acknowledged for 60 s");
            if (failure != null) throw failure;
            producer.send(message(value), new AsyncCallback() {
                @Override
                public void onSuccess() {
                    Load.ACKNOWLEDGED.incrementAndGet();
                    free.release();
                }

                @Override
                public void onException(JMSException problem) {
                    failure = problem;
                    free.release();
                }
            });
        }

        @Override
        public void drain() throws Exception {
            if (!isAcknowledged) return;
            if (!free.tryAcquire(IN_FLIGHT, 60, TimeUnit.SECONDS)) throw new IllegalStateException("not acknowledged");
            if (failure != null) throw failure;
        }
    }

    /** Acknowledged lazily, many at once. */
    @Override
    public Load.Consuming consumer(boolean durable) throws Exception {
        Session session = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue);
        return new Load.Consuming() {
            @Override
            public int receive() throws JMSException {
                return consumer.receive(1000) == null ? 0 : 1;
            }

            @Override
            public void close() throws JMSException {
                connection.close();
            }
        };
    }

    @Override
    public long delete() throws Exception {
        connection.destroyDestination(new ActiveMQQueue(queue.getPhysicalName()));
        return -1;
    }
}
