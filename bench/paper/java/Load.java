import java.util.concurrent.atomic.AtomicLong;

/**
 * The benchmark's client for any of the systems, by its own Java library: one producer or one consumer.
 *
 * <p>Arguments: produce|consume|delete SYSTEM ADDRESS NAME, then key=value pairs. Prints one JSON object.
 * The window opens after warmup_s and is open for `seconds`, or until `messages` have passed: what is acknowledged or
 * received in it counts.
 */
public final class Load {
    static final int VALUE_BYTES = 200;

    /** Messages that the system has acknowledged; where nothing is acknowledged, those handed to its client. */
    static final AtomicLong ACKNOWLEDGED = new AtomicLong();

    interface Producing extends AutoCloseable {
        /** Blocks while too many messages are unacknowledged. */
        void send(byte[] value) throws Exception;

        /** Waits until everything sent is acknowledged. */
        void drain() throws Exception;
    }

    interface Consuming extends AutoCloseable {
        /** Gives the number of messages that came; blocks for at most about a second. */
        int receive() throws Exception;
    }

    interface Client {
        Producing producer(int batch, boolean durable) throws Exception;

        Consuming consumer(boolean durable) throws Exception;

        /** Gives the messages that were in the queue, -1 where the system does not tell. */
        long delete() throws Exception;
    }

    public static void main(String[] words) throws Exception {
        Options options = new Options(words);
        Client client = switch (options.system) {
            case "kafka" -> new KafkaLoad(options.address, options.name);
            case "rabbitmq" -> new RabbitLoad(options.address, options.name);
            case "activemq" -> new JmsLoad(options.address, options.name);
            default -> throw new IllegalArgumentException("unknown system " + options.system);
        };
        switch (options.mode) {
            case "produce" -> produce(client, options);
            case "consume" -> consume(client, options);
            case "delete" -> System.out.println("{\"messages\": " + client.delete() + "}");
            default -> throw new IllegalArgumentException("unknown mode " + options.mode);
        }
        System.exit(0); // some libraries keep threads that are no daemons
    }

    private static void produce(Client client, Options options) throws Exception {
        byte[] value = new byte[VALUE_BYTES];
        for (int i = 0; i < VALUE_BYTES; i++) value[i] = (byte) ('a' + i % 26);
        Window window = new Window(options.warmupSeconds, options.seconds);
        long sent = 0;
        try (Producing producing = client.producer(options.batch, options.durable)) {
            while (options.messages > 0 ? sent < options.messages : !window.isOver(ACKNOWLEDGED.get())) {
                producing.send(value);
                sent++;
                if (options.messages > 0) window.isOver(ACKNOWLEDGED.get());
            }
            producing.drain();
            if (options.messages > 0) window.end(ACKNOWLEDGED.get());
        }
        window.print(sent, ACKNOWLEDGED.get());
    }

    /** A consumer that has read everything once has a fixed number to read: a fifth of it is warm-up. */
    private static void consume(Client client, Options options) throws Exception {
        Window window = options.messages > 0 ? new Window(0, 3600) : new Window(options.warmupSeconds, options.seconds);
        long received = 0;
        long lastNews = System.nanoTime();
        try (Consuming consuming = client.consumer(options.durable)) {
            while (options.messages > 0 ? received < options.messages : !window.isOver(received)) {
                int count = consuming.receive();
                received += count;
                long now = System.nanoTime();
                if (count > 0) lastNews = now;
                if (now - lastNews > 30_000_000_000L) throw new IllegalStateException("nothing came for 30 s");
                if (options.messages > 0 && received >= options.messages / 5) window.openOnce(received);
            }
            if (options.messages > 0) window.end(received);
        }
        window.print(received, received);
    }
}
