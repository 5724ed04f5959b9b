import java.util.Locale;

/** The measured time, and how far the count was at its two ends. */
final class Window {
    private final long opensAt;
    private final long lengthNanos;
    private long openedAt;
    private long closedAt;
    private long countOpened;
    private long countClosed;
    private double cpuOpened;
    private double cpuClosed;

    Window(double warmupSeconds, double seconds) {
        opensAt = System.nanoTime() + (long) (warmupSeconds * 1e9);
        lengthNanos = (long) (seconds * 1e9);
    }

    boolean isOver(long count) {
        long now = System.nanoTime();
        if (openedAt == 0) {
            if (now >= opensAt) openOnce(count);
            return false;
        }
        if (closedAt == 0 && now - openedAt >= lengthNanos) end(count);
        return closedAt != 0;
    }

    void openOnce(long count) {
        if (openedAt != 0) return;
        openedAt = System.nanoTime();
        countOpened = count;
        cpuOpened = cpuSeconds();
    }

    void end(long count) {
        if (closedAt != 0) return;
        openOnce(0);
        closedAt = System.nanoTime();
        countClosed = count;
        cpuClosed = cpuSeconds();
    }

    void print(long sent, long acknowledged) {
        double seconds = (closedAt - openedAt) / 1e9;
        long messages = countClosed - countOpened;
        System.out.printf(
                Locale.ROOT,
                "{\"seconds\": %.6f, \"messages\": %d, \"messages_per_s\": %.1f, \"sent_total\": %d, "
                        + "\"messages_total\": %d, \"client_cpu_share\": %.4f}%n",
                seconds, messages, messages / seconds, sent, acknowledged, (cpuClosed - cpuOpened) / seconds);
    }

    private static double cpuSeconds() {
        return ProcessHandle.current().info().totalCpuDuration().map(each -> each.toNanos() / 1e9).orElse(0.0);
    }
}
