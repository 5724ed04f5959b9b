import java.util.concurrent.CountDownLatch;
import java.util.function.BooleanSupplier;

/** Runs a program until SIGTERM asks it to end.  The status is 0 only when it then ended in order. */
final class UntilTerminated {
    interface Program {
        void run(BooleanSupplier isStopping) throws Exception;
    }

    private static volatile boolean isStopping = false;
    private static volatile int status = 1;

    static void run(Program program) {
        CountDownLatch hasEnded = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isStopping = true;
            try {
                hasEnded.await();
            } catch (InterruptedException interrupted) {
                status = 1;
            }
            // Else the status would be that of the signal.
            Runtime.getRuntime().halt(status);
        }));
        try {
            program.run(() -> isStopping);
            status = 0;
        } catch (Throwable problem) {
            problem.printStackTrace();
        } finally {
            hasEnded.countDown();
        }
        System.exit(status);
    }
}
