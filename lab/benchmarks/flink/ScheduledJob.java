import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.Serializable;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

import org.apache.flink.api.common.eventtime.SerializableTimestampAssigner;
import org.apache.flink.api.common.eventtime.TimestampAssigner;
import org.apache.flink.api.common.eventtime.TimestampAssignerSupplier;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkGeneratorSupplier;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FilterFunction;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiter;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;

/**
 * A job whose load is known beforehand: an open-loop source, operators with work of a given length, and a sink that writes down
 * when each event was scheduled and when its result was there.
 *
 * <p>Arguments are name=value: name; out, a file; start, the time of the schedule's beginning in ms since 1970; arrivals, events
 * of each second, with commas; stages, with semicolons, each name/kind/work/microseconds/parallelism/option. Kinds are filter
 * (option: percent that pass), map, keyed, window (option: size in ms) and join with the source of arrivals2 (option: largest
 * distance in ms). Work is park, which needs no processor, or cpu. pad is a number of bytes that each event carries; keys how many keys there are;
 * delay the watermark's in ms; seed that of arrivals within their second.
 *
 * <p>Compiled by Janino, so types are raw, casts are written out, and there are no lambdas.
 */
public class ScheduledJob {
    static final TypeInformation EVENT =
            Types.TUPLE(new TypeInformation[] {Types.LONG, Types.LONG, Types.INT, Types.STRING});

    static final Field SEQUENCE = new Field(0, Types.LONG);
    static final Field KEY = new Field(2, Types.INT);

    public static void main(String[] arguments) throws Exception {
        Map options = new HashMap();
        for (int i = 0; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            options.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        environment.disableOperatorChaining();
        DataStream events = source(environment, "arrivals", options);
        String[] stages = ((String) options.get("stages")).split(";");
        for (int i = 0; i < stages.length; i++) {
            events = stage(environment, events, stages[i].split("/"), options);
        }
        events.sinkTo(new ResultSink((String) options.get("out"))).name("results").uid("results");
        environment.execute((String) options.get("name"));
    }

    static DataStream source(StreamExecutionEnvironment environment, String name, Map options) {
        Schedule schedule = new Schedule(
                Long.parseLong((String) options.get("start")),
                numbers((String) options.get(name)),
                Long.parseLong((String) options.get("seed")));
        int keys = Integer.parseInt((String) options.get("keys"));
        Generator generator = new Generator(schedule, keys, Integer.parseInt((String) options.get("pad")));
        DataGeneratorSource source =
                new DataGeneratorSource(generator, schedule.events(), new ScheduledStrategy(schedule), EVENT);
        Watermarks watermarks = new Watermarks(Long.parseLong((String) options.get("delay")));
        return environment.fromSource(source, watermarks, name, EVENT).uid(name);
    }

    static DataStream stage(StreamExecutionEnvironment environment, DataStream events, String[] stage, Map options) {
        String name = stage[0];
        String kind = stage[1];
        Work work = new Work(stage[2].equals("cpu"), Integer.parseInt(stage[3]));
        int option = stage.length > 5 ? Integer.parseInt(stage[5]) : 0;
        SingleOutputStreamOperator result;
        if (kind.equals("filter")) {
            result = events.filter(new Filter(work, option));
        } else if (kind.equals("map")) {
            result = events.map(new Step(work), EVENT);
        } else if (kind.equals("keyed")) {
            result = events.keyBy(KEY, Types.INT).process(new KeyedStep(work), EVENT);
        } else if (kind.equals("window")) {
            KeyedStream keyed = events.keyBy(KEY, Types.INT);
            result = keyed.window(TumblingEventTimeWindows.of(Duration.ofMillis((long) option)))
                    .process(new Summary(work), EVENT);
        } else if (kind.equals("join")) {
            KeyedStream others = source(environment, "arrivals2", options).keyBy(SEQUENCE, Types.LONG);
            KeyedStream keyed = events.keyBy(SEQUENCE, Types.LONG);
            result = keyed.intervalJoin(others)
                    .between(Duration.ofMillis((long) -option), Duration.ofMillis((long) option))
                    .process(new Pair(work), EVENT);
        } else {
            throw new IllegalArgumentException("kind is " + kind + "; allowed: filter, map, keyed, window, join");
        }
        return result.setParallelism(Integer.parseInt(stage[4])).name(name).uid(name);
    }

    static int[] numbers(String text) {
        String[] parts = text.split(",");
        int[] values = new int[parts.length];
        for (int i = 0; i < parts.length; i++) {
            values[i] = Integer.parseInt(parts[i]);
        }
        return values;
    }

    /** The time of every event: as many in each second as were asked for, at times drawn from the seed. */
    static class Schedule implements Serializable {
        final long start;
        final int[] arrivals;
        final long seed;
        transient long[] times;

        Schedule(long start, int[] arrivals, long seed) {
            this.start = start;
            this.arrivals = arrivals;
            this.seed = seed;
        }

        long events() {
            long sum = 0L;
            for (int i = 0; i < arrivals.length; i++) {
                sum += (long) arrivals[i];
            }
            return sum;
        }

        synchronized long time(long event) {
            if (times == null) {
                long[] drawn = new long[(int) events()];
                Random random = new Random(seed);
                int position = 0;
                for (int second = 0; second < arrivals.length; second++) {
                    for (int i = 0; i < arrivals[second]; i++) {
                        drawn[position++] = start + 1000L * (long) second + (long) random.nextInt(1000);
                    }
                }
                Arrays.sort(drawn);
                times = drawn;
            }
            return times[(int) Math.min(event, (long) times.length - 1L)];
        }
    }

    static class Generator implements GeneratorFunction {
        final Schedule schedule;
        final int keys;
        final int pad;
        transient String padding;

        Generator(Schedule schedule, int keys, int pad) {
            this.schedule = schedule;
            this.keys = keys;
            this.pad = pad;
        }

        public Object map(Object number) {
            if (padding == null) {
                char[] filled = new char[pad];
                Arrays.fill(filled, 'x');
                padding = new String(filled);
            }
            long event = ((Long) number).longValue();
            long mixed = event * -7046029254386353131L;
            int key = (int) Math.floorMod(mixed >>> 17, (long) keys);
            return new Tuple4(number, Long.valueOf(schedule.time(event)), Integer.valueOf(key), padding);
        }
    }

    static class ScheduledStrategy implements RateLimiterStrategy {
        final Schedule schedule;

        ScheduledStrategy(Schedule schedule) {
            this.schedule = schedule;
        }

        public RateLimiter createRateLimiter(int parallelism) {
            return new ScheduledLimiter(schedule);
        }
    }

    /** Lets each event go at its time; those that are late by then go at once. */
    static class ScheduledLimiter implements RateLimiter {
        static final ScheduledThreadPoolExecutor TIMER = timer();
        final Schedule schedule;
        long next;

        ScheduledLimiter(Schedule schedule) {
            this.schedule = schedule;
        }

        static ScheduledThreadPoolExecutor timer() {
            ScheduledThreadPoolExecutor executor = new ScheduledThreadPoolExecutor(1);
            executor.setKeepAliveTime(5L, TimeUnit.SECONDS);
            executor.allowCoreThreadTimeOut(true);
            return executor;
        }

        public CompletionStage acquire(int number) {
            long wait = schedule.time(next++) - System.currentTimeMillis();
            if (wait <= 0L) {
                return CompletableFuture.completedFuture(null);
            }
            CompletableFuture future = new CompletableFuture();
            TIMER.schedule(new Release(future), wait, TimeUnit.MILLISECONDS);
            return future;
        }
    }

    static class Release implements Runnable {
        final CompletableFuture future;

        Release(CompletableFuture future) {
            this.future = future;
        }

        public void run() {
            future.complete(null);
        }
    }

    /** Watermarks that lie a fixed time behind the latest event, and the times of events. */
    static class Watermarks implements WatermarkStrategy {
        final long delay;

        Watermarks(long delay) {
            this.delay = delay;
        }

        public WatermarkGenerator createWatermarkGenerator(WatermarkGeneratorSupplier.Context context) {
            return new DelayedWatermarks(delay);
        }

        public TimestampAssigner createTimestampAssigner(TimestampAssignerSupplier.Context context) {
            return new ScheduledTime();
        }
    }

    static class DelayedWatermarks implements WatermarkGenerator {
        final long delay;
        long latest = -4611686018427387904L;

        DelayedWatermarks(long delay) {
            this.delay = delay;
        }

        public void onEvent(Object event, long time, WatermarkOutput output) {
            latest = Math.max(latest, time);
        }

        public void onPeriodicEmit(WatermarkOutput output) {
            output.emitWatermark(new Watermark(latest - delay - 1L));
        }
    }

    static class ScheduledTime implements SerializableTimestampAssigner {
        public long extractTimestamp(Object event, long before) {
            return ((Long) ((Tuple) event).getField(1)).longValue();
        }
    }

    /** A field as key; it says its type, which cannot be inferred of a raw one. */
    static class Field implements KeySelector, ResultTypeQueryable {
        final int position;
        final TypeInformation type;

        Field(int position, TypeInformation type) {
            this.position = position;
            this.type = type;
        }

        public Object getKey(Object event) {
            return ((Tuple) event).getField(position);
        }

        public TypeInformation getProducedType() {
            return type;
        }
    }

    /** Work of one event: the thread is parked, or it computes. Parking overshoots, so what it overshot is owed to later events. */
    static class Work implements Serializable {
        final boolean computes;
        final int microseconds;
        transient long owed;
        transient long mixed;

        Work(boolean computes, int microseconds) {
            this.computes = computes;
            this.microseconds = microseconds;
        }

        void run() {
            if (computes) {
                long x = mixed + 88172645463325252L;
                for (int i = 0; i < microseconds * 400; i++) {
                    x ^= x << 13;
                    x ^= x >>> 7;
                    x ^= x << 17;
                }
                mixed = x;
                return;
            }
            owed += (long) microseconds * 1000L;
            if (owed > 500000L) {
                long before = System.nanoTime();
                LockSupport.parkNanos(owed);
                owed -= System.nanoTime() - before;
            }
        }
    }

    static class Filter implements FilterFunction {
        final Work work;
        final int percent;

        Filter(Work work, int percent) {
            this.work = work;
            this.percent = percent;
        }

        public boolean filter(Object event) {
            work.run();
            long mixed = ((Long) ((Tuple) event).getField(0)).longValue() * -3335678366873096957L;
            return Math.floorMod(mixed >>> 20, 100L) < (long) percent;
        }
    }

    static class Step implements MapFunction {
        final Work work;

        Step(Work work) {
            this.work = work;
        }

        public Object map(Object event) {
            work.run();
            return event;
        }
    }

    static class KeyedStep extends KeyedProcessFunction {
        final Work work;

        KeyedStep(Work work) {
            this.work = work;
        }

        public void processElement(Object event, KeyedProcessFunction.Context context, Collector out) {
            work.run();
            out.collect(event);
        }
    }

    /** Result of a window: how many events it holds, and the times of all of them. */
    static class Summary extends ProcessWindowFunction {
        final Work work;

        Summary(Work work) {
            this.work = work;
        }

        public void process(Object key, ProcessWindowFunction.Context context, Iterable events, Collector out) {
            work.run();
            StringBuilder times = new StringBuilder();
            long number = 0L;
            Object latest = null;
            for (Iterator all = events.iterator(); all.hasNext();) {
                latest = ((Tuple) all.next()).getField(1);
                times.append(latest).append(' ');
                number++;
            }
            out.collect(new Tuple4(Long.valueOf(number), latest, key, times.toString()));
        }
    }

    /** Result of a join: waits of either event for the other are no latency, so the later one's time counts. */
    static class Pair extends ProcessJoinFunction {
        final Work work;

        Pair(Work work) {
            this.work = work;
        }

        public void processElement(Object left, Object right, ProcessJoinFunction.Context context, Collector out) {
            work.run();
            Long early = (Long) ((Tuple) left).getField(1);
            Long late = (Long) ((Tuple) right).getField(1);
            Object time = early.longValue() > late.longValue() ? early : late;
            out.collect(new Tuple4(((Tuple) left).getField(0), time, ((Tuple) left).getField(2), ""));
        }
    }

    static class ResultSink implements Sink {
        final String path;

        ResultSink(String path) {
            this.path = path;
        }

        public SinkWriter createWriter(WriterInitContext context) throws IOException {
            RecentLatency latency = new RecentLatency();
            context.metricGroup().gauge("resultLatencyWorst", (Gauge) new LatencyGauge(latency, 1.0));
            context.metricGroup().gauge("resultLatencyQ99", (Gauge) new LatencyGauge(latency, 0.99));
            context.metricGroup().gauge("resultLatencyMean", (Gauge) new LatencyGauge(latency, -1.0));
            return new ResultWriter(new PrintWriter(new FileWriter(path)), latency);
        }
    }

    /** Latencies of the results of the last ten seconds; asked by the thread of metrics while the sink's adds to them. */
    static class RecentLatency {
        static final long STRETCH_MS = 10000L;
        final ArrayDeque entries = new ArrayDeque();

        synchronized void add(long now, long latency) {
            entries.addLast(new long[] {now, latency});
            drop(now);
        }

        synchronized void drop(long now) {
            while (!entries.isEmpty() && ((long[]) entries.peekFirst())[0] < now - STRETCH_MS) {
                entries.removeFirst();
            }
        }

        /** A quantile in seconds, or the mean where it is negative; NaN without results. */
        synchronized double seconds(double quantile) {
            drop(System.currentTimeMillis());
            if (entries.isEmpty()) {
                return Double.NaN;
            }
            double[] all = new double[entries.size()];
            double sum = 0.0;
            int position = 0;
            for (Iterator each = entries.iterator(); each.hasNext();) {
                all[position] = (double) ((long[]) each.next())[1] / 1000.0;
                sum += all[position++];
            }
            Arrays.sort(all);
            int rank = (int) Math.ceil(quantile * (double) all.length) - 1;
            return quantile < 0.0 ? sum / (double) all.length : all[Math.max(rank, 0)];
        }
    }

    static class LatencyGauge implements Gauge {
        final RecentLatency latency;
        final double quantile;

        LatencyGauge(RecentLatency latency, double quantile) {
            this.latency = latency;
            this.quantile = quantile;
        }

        public Object getValue() {
            return Double.valueOf(latency.seconds(quantile));
        }
    }

    /** Writes sequence number, scheduled time and the present one, in ms since 1970; of a window, a line for each event. */
    static class ResultWriter implements SinkWriter {
        final PrintWriter writer;
        final RecentLatency latency;
        long flushed;

        ResultWriter(PrintWriter writer, RecentLatency latency) {
            this.writer = writer;
            this.latency = latency;
        }

        public void write(Object result, SinkWriter.Context context) {
            Tuple event = (Tuple) result;
            long now = System.currentTimeMillis();
            String times = (String) event.getField(3);
            if (times.indexOf(' ') < 0) {
                line(event.getField(0), ((Long) event.getField(1)).longValue(), now);
            } else {
                String[] all = times.trim().split(" ");
                for (int i = 0; i < all.length; i++) {
                    line(event.getField(0), Long.parseLong(all[i]), now);
                }
            }
            if (now - flushed > 200L) {
                writer.flush();
                flushed = now;
            }
        }

        void line(Object number, long scheduled, long now) {
            writer.println(number + "," + scheduled + "," + now);
            latency.add(now, now - scheduled);
        }

        public void flush(boolean isEnd) {
            writer.flush();
        }

        public void close() {
            writer.close();
        }
    }
}
