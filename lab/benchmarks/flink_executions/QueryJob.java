import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.Serializable;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.CoGroupFunction;
import org.apache.flink.api.common.functions.FilterFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiter;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.tuple.Tuple7;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.AllWindowedStream;
import org.apache.flink.streaming.api.datastream.CoGroupedStreams;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessAllWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.GlobalWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingProcessingTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingProcessingTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.triggers.PurgingTrigger;
import org.apache.flink.util.Collector;

/**
 * A query of filters, aggregations and joins, with the hosts of its operators as slot sharing groups.
 *
 * <p>Arguments are name=value: name; out, a file for the sink, beside which each source writes its own; start, the time of the first
 * arrival in ms since 1970; seconds for which they come; seed; plan: operators in topological order with semicolons, the fields of
 * each with slashes. source/host/rate/longs/strings/doubles; filter/host/input/function/type/selectivity;
 * agg/host/input/function/groups/values/policy/type/size/slide; join/host/left/right/keys/share/policy/type/size/slide; sink/host/input.
 * Sizes and slides are tuples or seconds.
 *
 * <p>A tuple holds its number, when it was due and when it entered (microseconds since 1970), a value, and fields by type; a result
 * of a window is as old as the oldest of what the window held. Compiled by Janino, so types are raw and there are no lambdas.
 */
public class QueryJob {
    static final TypeInformation ROW = Types.TUPLE(new TypeInformation[] {
        Types.LONG, Types.LONG, Types.LONG, Types.DOUBLE,
        Types.PRIMITIVE_ARRAY(Types.LONG), Types.PRIMITIVE_ARRAY(Types.DOUBLE), Types.OBJECT_ARRAY(Types.STRING)
    });
    static final int LANES = 10;

    public static void main(String[] arguments) throws Exception {
        Map options = new HashMap();
        for (int i = 0; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            options.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        String[] lines = ((String) options.get("plan")).split(";");
        DataStream[] streams = new DataStream[lines.length];
        String out = (String) options.get("out");
        for (int i = 0; i < lines.length; i++) {
            String[] fields = lines[i].split("/");
            String name = "op" + i;
            String host = "host" + fields[1];
            if (fields[0].equals("sink")) {
                streams[Integer.parseInt(fields[2])].sinkTo(new ResultSink(out))
                        .name(name).uid(name).slotSharingGroup(host);
                continue;
            }
            SingleOutputStreamOperator result;
            if (fields[0].equals("source")) {
                result = source(environment, name, fields, i, options);
            } else if (fields[0].equals("filter")) {
                result = streams[Integer.parseInt(fields[2])].filter(
                        new Select(fields[3], fields[4], Double.parseDouble(fields[5]), LANES * i + 2));
            } else if (fields[0].equals("agg")) {
                Aggregate function = new Aggregate(fields[3], Double.parseDouble(fields[4]),
                        Integer.parseInt(fields[5]), LANES * i + 2);
                result = all(streams[Integer.parseInt(fields[2])], fields).process(function, ROW);
            } else if (fields[0].equals("join")) {
                Match function = new Match(Double.parseDouble(fields[4]), Double.parseDouble(fields[5]), LANES * i + 2);
                result = both(streams[Integer.parseInt(fields[2])], streams[Integer.parseInt(fields[3])], fields)
                        .apply(function, ROW);
            } else {
                throw new IllegalArgumentException(
                        "operator is " + fields[0] + "; allowed: source, filter, agg, join, sink");
            }
            streams[i] = result.name(name).uid(name).slotSharingGroup(host);
        }
        environment.execute((String) options.get("name"));
    }

    static SingleOutputStreamOperator source(
            StreamExecutionEnvironment environment, String name, String[] fields, int position, Map options) {
        long seed = Long.parseLong((String) options.get("seed")) + (long) position;
        Arrivals arrivals = new Arrivals(
                Long.parseLong((String) options.get("start")), Double.parseDouble(fields[2]), LANES * position);
        Generator generator = new Generator(
                arrivals, (String) options.get("out") + "." + position, seed,
                Integer.parseInt(fields[3]), Integer.parseInt(fields[4]), Integer.parseInt(fields[5]));
        long count = arrivals.until(Long.parseLong((String) options.get("seconds")));
        DataGeneratorSource source = new DataGeneratorSource(generator, count, new ArrivalStrategy(arrivals), ROW);
        return environment.fromSource(source, WatermarkStrategy.noWatermarks(), name, ROW);
    }

    /** The window of an aggregation: over all tuples, as queries that count tuples have it. */
    static AllWindowedStream all(DataStream events, String[] fields) {
        double size = Double.parseDouble(fields[8]);
        double slide = Double.parseDouble(fields[9]);
        if (fields[6].equals("time")) {
            return events.windowAll(times(fields[7], size, slide));
        }
        AllWindowedStream windowed = events.windowAll(GlobalWindows.create());
        if (fields[7].equals("tumbling")) {
            return windowed.trigger(PurgingTrigger.of(CountTrigger.of((long) size)));
        }
        return windowed.trigger(CountTrigger.of((long) slide)).evictor(CountEvictor.of((long) size));
    }

    /** The window of a join; where it counts, it counts tuples of both inputs. */
    static CoGroupedStreams.WithWindow both(DataStream left, DataStream right, String[] fields) {
        double size = Double.parseDouble(fields[8]);
        double slide = Double.parseDouble(fields[9]);
        CoGroupedStreams.Where.EqualTo paired =
                left.coGroup(right).where(new One(), Types.INT).equalTo(new One(), Types.INT);
        if (fields[6].equals("time")) {
            return paired.window(times(fields[7], size, slide));
        }
        CoGroupedStreams.WithWindow windowed = paired.window(GlobalWindows.create());
        if (fields[7].equals("tumbling")) {
            return windowed.trigger(PurgingTrigger.of(CountTrigger.of(2L * (long) size)));
        }
        return windowed.trigger(CountTrigger.of(2L * (long) slide)).evictor(CountEvictor.of(2L * (long) size));
    }

    static WindowAssigner times(String type, double size, double slide) {
        Duration length = Duration.ofMillis(Math.round(1000.0 * size));
        return type.equals("tumbling")
                ? (WindowAssigner) TumblingProcessingTimeWindows.of(length)
                : (WindowAssigner) SlidingProcessingTimeWindows.of(length, Duration.ofMillis(Math.round(1000.0 * slide)));
    }

    static long micros() {
        Instant now = Instant.now();
        return 1000000L * now.getEpochSecond() + (long) (now.getNano() / 1000);
    }

    static long mixed(long number, int lane) {
        long z = (number + (long) lane + 1L) * -7046029254386353131L;
        z = (z ^ (z >>> 30)) * -4658895280553007687L;
        z = (z ^ (z >>> 27)) * -7723592293110705685L;
        return z ^ (z >>> 31);
    }

    static double uniform(long number, int lane) {
        return (double) (mixed(number, lane) >>> 11) * 1.1102230246251565e-16;
    }

    static long number(Object row) {
        return ((Long) ((Tuple) row).getField(0)).longValue();
    }

    static long due(Object row) {
        return ((Long) ((Tuple) row).getField(1)).longValue();
    }

    static long entered(Object row) {
        return ((Long) ((Tuple) row).getField(2)).longValue();
    }

    static Object row(long number, long due, long entered, double value, Object longs, Object doubles, Object texts) {
        return new Tuple7(Long.valueOf(number), Long.valueOf(due), Long.valueOf(entered), Double.valueOf(value),
                longs, doubles, texts);
    }

    /** When each tuple is due: at a rate, each at a drawn time of its own turn. */
    static class Arrivals implements Serializable {
        final long start;
        final double rate;
        final int lane;

        Arrivals(long start, double rate, int lane) {
            this.start = start;
            this.rate = rate;
            this.lane = lane;
        }

        long until(long seconds) {
            return (long) (rate * (double) seconds);
        }

        /** In microseconds since 1970. */
        long due(long place) {
            return 1000L * start + (long) (1e6 * ((double) place + uniform(place, lane)) / rate);
        }
    }

    static class ArrivalStrategy implements RateLimiterStrategy {
        final Arrivals arrivals;

        ArrivalStrategy(Arrivals arrivals) {
            this.arrivals = arrivals;
        }

        public RateLimiter createRateLimiter(int parallelism) {
            return new ArrivalLimiter(arrivals);
        }
    }

    /** Lets each tuple go when it is due; those that are late by then go at once. */
    static class ArrivalLimiter implements RateLimiter {
        static final CompletableFuture NOW = CompletableFuture.completedFuture(null);
        final Arrivals arrivals;
        long next;
        long now;

        ArrivalLimiter(Arrivals arrivals) {
            this.arrivals = arrivals;
        }

        public CompletionStage acquire(int number) {
            long due = arrivals.due(next++);
            if (due > now) {
                now = micros();
            }
            if (due <= now) {
                return NOW;
            }
            CompletableFuture future = new CompletableFuture();
            ScheduledJob.ScheduledLimiter.TIMER.schedule(
                    new ScheduledJob.Release(future), due - now, TimeUnit.MICROSECONDS);
            return future;
        }
    }

    /** Makes the tuples, and writes down every tenth of a second how many there were by then. */
    static class Generator implements GeneratorFunction {
        final Arrivals arrivals;
        final String path;
        final long seed;
        final int longs;
        final int texts;
        final int doubles;
        transient PrintWriter writer;
        transient long written;

        Generator(Arrivals arrivals, String path, long seed, int longs, int texts, int doubles) {
            this.arrivals = arrivals;
            this.path = path;
            this.seed = seed;
            this.longs = longs;
            this.texts = texts;
            this.doubles = doubles;
        }

        public Object map(Object event) throws IOException {
            if (writer == null) {
                writer = new PrintWriter(new FileWriter(path));
            }
            long place = ((Long) event).longValue();
            long now = micros();
            if (now - written >= 100000L) {
                writer.println(now + "," + place);
                writer.flush();
                written = now;
            }
            int lane = arrivals.lane;
            long number = mixed(mixed(place, lane) + seed, lane);
            long[] whole = new long[longs];
            Arrays.fill(whole, number & 255L);
            double[] real = new double[doubles];
            Arrays.fill(real, (double) (number & 255L));
            String[] words = new String[texts];
            for (int i = 0; i < texts; i++) {
                words[i] = Long.toHexString(number);
            }
            return row(number, arrivals.due(place), now, uniform(number, lane + 1), whole, real, words);
        }
    }

    /** Compares a value that is drawn so that the stated share passes. */
    static class Select implements FilterFunction {
        final String function;
        final String type;
        final double selectivity;
        final int lane;

        Select(String function, String type, double selectivity, int lane) {
            this.function = function;
            this.type = type;
            this.selectivity = selectivity;
            this.lane = lane;
        }

        public boolean filter(Object row) {
            double drawn = uniform(number(row), lane);
            if (function.equals("startswith") || function.equals("endswith")) {
                String text = drawn < selectivity ? "yes-sensor-yes" : "no-sensor-no";
                return function.equals("startswith") ? text.startsWith("yes") : text.endsWith("yes");
            }
            if (function.equals("!=")) {
                return compared(drawn < selectivity ? 1.0 : 0.0, 0.0) != 0;
            }
            boolean below = function.equals("<") || function.equals("<=");
            int order = compared(drawn, below ? selectivity : 1.0 - selectivity);
            return below ? order < 0 : order >= 0;
        }

        int compared(double value, double literal) {
            if (type.equals("double")) {
                return Double.compare(value, literal);
            }
            int left = (int) (value * 1000000.0);
            int right = (int) (literal * 1000000.0);
            return type.equals("int") ? Integer.compare(left, right) : text(left).compareTo(text(right));
        }

        static String text(int value) {
            String digits = Integer.toString(value);
            return "00000000".substring(Math.min(8, digits.length())) + digits;
        }
    }

    /** The aggregate of each group that a window holds. */
    static class Aggregate extends ProcessAllWindowFunction {
        final String function;
        final double groups;
        final int values;
        final int lane;

        Aggregate(String function, double groups, int values, int lane) {
            this.function = function;
            this.groups = groups;
            this.values = values;
            this.lane = lane;
        }

        public void process(ProcessAllWindowFunction.Context context, Iterable rows, Collector out) {
            Map sums = new HashMap();
            long due = Long.MAX_VALUE;
            long entered = Long.MAX_VALUE;
            long last = 0L;
            boolean least = function.equals("min");
            boolean most = function.equals("max");
            for (Iterator each = rows.iterator(); each.hasNext();) {
                Object row = each.next();
                last = number(row);
                due = Math.min(due, due(row));
                entered = Math.min(entered, entered(row));
                Long key = Long.valueOf((long) (uniform(last, lane) * groups));
                double value = ((Double) ((Tuple) row).getField(3)).doubleValue();
                double[] sum = (double[]) sums.get(key);
                if (sum == null) {
                    sums.put(key, new double[] {value, 1.0});
                } else {
                    sum[0] = least ? Math.min(sum[0], value) : most ? Math.max(sum[0], value) : sum[0] + value;
                    sum[1] += 1.0;
                }
            }
            for (Iterator each = sums.entrySet().iterator(); each.hasNext();) {
                Map.Entry entry = (Map.Entry) each.next();
                double[] sum = (double[]) entry.getValue();
                double value = least || most ? sum[0] : sum[0] / sum[1];
                long group = ((Long) entry.getKey()).longValue();
                out.collect(row(mixed(group + last, lane), due, entered, value,
                        new long[0], new double[values], new String[0]));
            }
        }
    }

    /** One key for all: what is joined is found inside of the window. */
    static class One implements KeySelector, ResultTypeQueryable {
        public Object getKey(Object row) {
            return Integer.valueOf(0);
        }

        public TypeInformation getProducedType() {
            return Types.INT;
        }
    }

    /** Pairs of equal keys. */
    static class Match implements CoGroupFunction {
        final double keys;
        final double share;
        final int lane;

        Match(double keys, double share, int lane) {
            this.keys = keys;
            this.share = share;
            this.lane = lane;
        }

        public void coGroup(Iterable left, Iterable right, Collector out) {
            Map partners = new HashMap();
            long due = Long.MAX_VALUE;
            long entered = Long.MAX_VALUE;
            for (Iterator each = left.iterator(); each.hasNext();) {
                Object row = each.next();
                due = Math.min(due, due(row));
                entered = Math.min(entered, entered(row));
                Long key = Long.valueOf((long) (uniform(number(row), lane) * keys));
                List rows = (List) partners.get(key);
                if (rows == null) {
                    rows = new ArrayList();
                    partners.put(key, rows);
                }
                rows.add(row);
            }
            List found = new ArrayList();
            for (Iterator each = right.iterator(); each.hasNext();) {
                Object row = each.next();
                due = Math.min(due, due(row));
                entered = Math.min(entered, entered(row));
                List rows = (List) partners.get(
                        Long.valueOf((long) (uniform(number(row), lane + 1) * keys / share)));
                if (rows != null) {
                    found.add(new Object[] {rows, row});
                }
            }
            for (Iterator each = found.iterator(); each.hasNext();) {
                Object[] pair = (Object[]) each.next();
                for (Iterator rows = ((List) pair[0]).iterator(); rows.hasNext();) {
                    out.collect(joined((Tuple) rows.next(), (Tuple) pair[1], due, entered));
                }
            }
        }

        Object joined(Tuple left, Tuple right, long due, long entered) {
            long[] longs = (long[]) left.getField(4);
            long[] longs2 = (long[]) right.getField(4);
            long[] whole = Arrays.copyOf(longs, longs.length + longs2.length);
            System.arraycopy(longs2, 0, whole, longs.length, longs2.length);
            double[] doubles = (double[]) left.getField(5);
            double[] doubles2 = (double[]) right.getField(5);
            double[] real = Arrays.copyOf(doubles, doubles.length + doubles2.length);
            System.arraycopy(doubles2, 0, real, doubles.length, doubles2.length);
            String[] texts = (String[]) left.getField(6);
            String[] texts2 = (String[]) right.getField(6);
            String[] words = new String[texts.length + texts2.length];
            System.arraycopy(texts, 0, words, 0, texts.length);
            System.arraycopy(texts2, 0, words, texts.length, texts2.length);
            return row(mixed(number(left) ^ (number(right) << 1), lane + 2), due, entered,
                    ((Double) left.getField(3)).doubleValue(), whole, real, words);
        }
    }

    static class ResultSink implements Sink {
        final String path;

        ResultSink(String path) {
            this.path = path;
        }

        public SinkWriter createWriter(WriterInitContext context) throws IOException {
            return new ResultWriter(new PrintWriter(new FileWriter(path)));
        }
    }

    /** Writes for each second how many results came, and the sums of their ages since they entered and since they were due. */
    static class ResultWriter implements SinkWriter {
        final PrintWriter writer;
        long second;
        long count;
        long sinceEntered;
        long sinceDue;

        ResultWriter(PrintWriter writer) {
            this.writer = writer;
        }

        public void write(Object row, SinkWriter.Context context) {
            long now = micros();
            if (now / 1000000L != second) {
                tell();
                second = now / 1000000L;
            }
            count++;
            sinceEntered += now - entered(row);
            sinceDue += now - due(row);
        }

        void tell() {
            if (count > 0L) {
                writer.println(second + "," + count + "," + sinceEntered + "," + sinceDue);
                writer.flush();
            }
            count = 0L;
            sinceEntered = 0L;
            sinceDue = 0L;
        }

        public void flush(boolean isEnd) {
            tell();
        }

        public void close() {
            tell();
            writer.close();
        }
    }
}
