import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.concurrent.locks.LockSupport;

import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/** Functions that the benchmark's queries call: work of a known length, and a stopwatch before the sink. */
public class WorkFunctions {

    /** The value, after so many microseconds in which the thread waits and the processor is free. */
    public static class Park extends ScalarFunction {
        public Long eval(Long value, Integer micros) {
            long until = System.nanoTime() + micros.intValue() * 1000L;
            long left = until - System.nanoTime();
            while (left > 0) {
                LockSupport.parkNanos(left);
                left = until - System.nanoTime();
            }
            return value;
        }
    }

    /** The value, after arithmetic that took a quiet processor so many microseconds when the function was opened. */
    public static class Compute extends ScalarFunction {
        private static volatile double turnsPerMicro = 0.0;
        private volatile long kept;

        public void open(FunctionContext context) throws Exception {
            synchronized (WorkFunctions.class) {
                if (turnsPerMicro == 0.0) {
                    double best = 0.0;
                    for (int trial = 0; trial < 12; trial++) {
                        long began = System.nanoTime();
                        turn(2000000L);
                        best = Math.max(best, 2000000.0 * 1000.0 / (System.nanoTime() - began));
                    }
                    turnsPerMicro = best;
                }
            }
        }

        public Long eval(Long value, Integer micros) {
            turn((long) (micros.intValue() * turnsPerMicro));
            return value;
        }

        private void turn(long turns) {
            long state = kept | 1L;
            for (long i = 0; i < turns; i++) {
                state ^= state << 13;
                state ^= state >>> 7;
                state ^= state << 17;
            }
            kept = state;
        }
    }

    /** The moment, written down in the folder beside the moment at which it came by, both in ms. */
    public static class Observe extends ScalarFunction {
        private DataOutputStream out;
        private long flushed;

        public boolean isDeterministic() {
            return false;
        }

        public LocalDateTime eval(LocalDateTime moment, String folder) throws Exception {
            if (moment == null) {
                return moment;
            }
            if (out == null) {
                File file = File.createTempFile("latency-", ".bin", new File(folder));
                out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(file), 1 << 16));
            }
            long now = System.currentTimeMillis();
            out.writeLong(now);
            out.writeLong(moment.toInstant(ZoneOffset.UTC).toEpochMilli());
            if (now > flushed + 500) {
                out.flush();
                flushed = now;
            }
            return moment;
        }

        public void close() throws Exception {
            if (out != null) {
                out.close();
            }
        }
    }
}
