import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.streaming.api.datastream.AsyncDataStream;
import org.apache.flink.streaming.api.datastream.BroadcastStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.async.ResultFuture;
import org.apache.flink.streaming.api.functions.async.RichAsyncFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * Jobs of the DataStream API by kind: side outputs, asynchronous lookups, union, broadcast state, patterns, timers, connected
 * streams, and exchanges between all subtasks. Sources, work and the sink that writes latencies down are those of ScheduledJob, and so are the arguments; here
 * arrivals, arrivals2 and arrivals3 are the schedules of up to three sources, kind is the job's, micros the microseconds of work
 * of its operators, with commas, and parallelism that of its operators, but for sources and sinks, which have one subtask.
 *
 * <p>Operators are chained as Flink does by itself. Compiled by Janino, so types are raw and there are no lambdas.
 */
public class FlinkJobs {
    static final OutputTag LATE = new OutputTag("late", ScheduledJob.EVENT);
    static final OutputTag INVALID = new OutputTag("invalid", ScheduledJob.EVENT);
    static final int LOOKUP_MS = 20;
    static final int LOOKUPS_AT_ONCE = 10;
    static final long TIMER_MS = 1000L;
    static final MapStateDescriptor RULES = new MapStateDescriptor("rules", Types.INT, Types.LONG);

    public static void main(String[] arguments) throws Exception {
        Map options = new HashMap();
        for (int i = 0; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            options.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        int parallelism = Integer.parseInt((String) options.get("parallelism"));
        String kind = (String) options.get("kind");
        DataStream events = ScheduledJob.source(environment, "arrivals", options);
        SingleOutputStreamOperator results;
        if (kind.equals("side-outputs")) {
            SingleOutputStreamOperator parsed = events.process(new Parse(work(options, 0)), ScheduledJob.EVENT);
            named(parsed, "parse", parallelism);
            results = named(parsed.map(new ScheduledJob.Step(work(options, 1)), ScheduledJob.EVENT), "enrich", parallelism);
            DataStream late = parsed.getSideOutput(LATE);
            DataStream audited =
                    named(late.map(new ScheduledJob.Step(work(options, 2)), ScheduledJob.EVENT), "audit", parallelism);
            audited.sinkTo(new ScheduledJob.ResultSink(options.get("out") + ".late")).name("late").uid("late");
        } else if (kind.equals("async")) {
            SingleOutputStreamOperator found = AsyncDataStream.unorderedWait(
                    events, new Lookup(), 10000L, TimeUnit.MILLISECONDS, LOOKUPS_AT_ONCE);
            found.returns(ScheduledJob.EVENT).setParallelism(parallelism).uid("lookup"); // by the name that Flink gives
            results = named(found.map(new ScheduledJob.Step(work(options, 0)), ScheduledJob.EVENT), "score", parallelism);
        } else if (kind.equals("union")) {
            DataStream all = events.union(new DataStream[] {
                ScheduledJob.source(environment, "arrivals2", options),
                ScheduledJob.source(environment, "arrivals3", options)
            });
            results = keyed(all).process(new ScheduledJob.KeyedStep(work(options, 0)), ScheduledJob.EVENT);
            named(results, "count", parallelism);
        } else if (kind.equals("broadcast")) {
            BroadcastStream rules =
                    ScheduledJob.source(environment, "arrivals2", options).broadcast(new MapStateDescriptor[] {RULES});
            results = keyed(events).connect(rules).process(new Match(work(options, 0)), ScheduledJob.EVENT);
            named(results, "match", 2 * parallelism);
        } else if (kind.equals("pattern")) {
            Pattern pattern = Pattern.begin("first").where(new Third(work(options, 0), 0L))
                    .followedBy("second").where(new Third(new ScheduledJob.Work(false, 0), 1L))
                    .within(Duration.ofMillis(5000L));
            results = CEP.pattern(keyed(events), pattern).process(new Pair(), ScheduledJob.EVENT);
            results.setParallelism(parallelism).uid("pattern");
        } else if (kind.equals("timers")) {
            results = named(keyed(events).process(new Flush(work(options, 0)), ScheduledJob.EVENT), "flush", parallelism);
        } else if (kind.equals("connected")) {
            KeyedStream profiles = keyed(ScheduledJob.source(environment, "arrivals2", options));
            results = keyed(events).connect(profiles).process(new Enrich(work(options, 0)), ScheduledJob.EVENT);
            named(results, "enrich", parallelism);
        } else if (kind.equals("exchanges")) {
            SingleOutputStreamOperator parsed =
                    events.rebalance().map(new ScheduledJob.Step(work(options, 0)), ScheduledJob.EVENT);
            named(parsed, "parse", parallelism);
            results = keyed(parsed).process(new ScheduledJob.KeyedStep(work(options, 1)), ScheduledJob.EVENT);
            named(results, "count", parallelism);
        } else {
            throw new IllegalArgumentException("kind is " + kind
                    + "; allowed: side-outputs, async, union, broadcast, pattern, timers, connected, exchanges");
        }
        results.sinkTo(new ScheduledJob.ResultSink((String) options.get("out"))).name("results").uid("results");
        environment.execute((String) options.get("name"));
    }

    static ScheduledJob.Work work(Map options, int position) {
        int[] micros = ScheduledJob.numbers((String) options.get("micros"));
        return new ScheduledJob.Work(options.get("work").equals("cpu"), micros[position]);
    }

    static KeyedStream keyed(DataStream events) {
        return events.keyBy(ScheduledJob.KEY, Types.INT);
    }

    static SingleOutputStreamOperator named(SingleOutputStreamOperator operator, String name, int parallelism) {
        return operator.setParallelism(parallelism).name(name).uid(name);
    }

    static long number(Object event) {
        return ((Long) ((Tuple) event).getField(0)).longValue();
    }

    /** Three quarters go on, a fifth is late, and what is left is put out to nobody. */
    static class Parse extends ProcessFunction {
        final ScheduledJob.Work work;

        Parse(ScheduledJob.Work work) {
            this.work = work;
        }

        public void processElement(Object event, ProcessFunction.Context context, Collector out) {
            work.run();
            long part = Math.floorMod(number(event) * 7L, 20L);
            if (part < 15L) {
                out.collect(event);
            } else {
                context.output(part < 19L ? LATE : INVALID, event);
            }
        }
    }

    /** Asks something that answers after a fixed time; the thread of the task goes on meanwhile. */
    static class Lookup extends RichAsyncFunction {
        transient ScheduledThreadPoolExecutor timer;

        public void open(OpenContext context) {
            timer = new ScheduledThreadPoolExecutor(1);
        }

        public void asyncInvoke(Object event, ResultFuture result) {
            timer.schedule(new Answer(event, result), (long) LOOKUP_MS, TimeUnit.MILLISECONDS);
        }

        public void close() {
            if (timer != null) {
                timer.shutdownNow();
            }
        }
    }

    static class Answer implements Runnable {
        final Object event;
        final ResultFuture result;

        Answer(Object event, ResultFuture result) {
            this.event = event;
            this.result = result;
        }

        public void run() {
            result.complete(Collections.singletonList(event));
        }
    }

    /** Events by rules that all subtasks hold. */
    static class Match extends KeyedBroadcastProcessFunction {
        final ScheduledJob.Work work;

        Match(ScheduledJob.Work work) {
            this.work = work;
        }

        public void processElement(Object event, KeyedBroadcastProcessFunction.ReadOnlyContext context, Collector out)
                throws Exception {
            work.run();
            context.getBroadcastState(RULES).get(((Tuple) event).getField(2));
            out.collect(event);
        }

        public void processBroadcastElement(Object rule, KeyedBroadcastProcessFunction.Context context, Collector out)
                throws Exception {
            context.getBroadcastState(RULES).put(((Tuple) rule).getField(2), ((Tuple) rule).getField(0));
        }
    }

    /** Every third event, by its rest; the work is done for each that is asked about. */
    static class Third extends SimpleCondition {
        final ScheduledJob.Work work;
        final long rest;

        Third(ScheduledJob.Work work, long rest) {
            this.work = work;
            this.rest = rest;
        }

        public boolean filter(Object event) {
            work.run();
            return Math.floorMod(number(event), 3L) == rest;
        }
    }

    /** The later event of a match. */
    static class Pair extends PatternProcessFunction {
        public void processMatch(Map match, PatternProcessFunction.Context context, Collector out) {
            out.collect(((List) match.get("second")).get(0));
        }
    }

    /** Events of a key, all at once when its timer is due: at the next whole second. */
    static class Flush extends KeyedProcessFunction {
        final ScheduledJob.Work work;
        transient ValueState times;

        Flush(ScheduledJob.Work work) {
            this.work = work;
        }

        public void open(OpenContext context) {
            times = getRuntimeContext().getState(new ValueStateDescriptor("times", Types.STRING));
        }

        public void processElement(Object event, KeyedProcessFunction.Context context, Collector out) throws Exception {
            work.run();
            Object before = times.value();
            times.update((before == null ? "" : (String) before) + ((Tuple) event).getField(1) + " ");
            long now = context.timerService().currentProcessingTime();
            context.timerService().registerProcessingTimeTimer(now - Math.floorMod(now, TIMER_MS) + TIMER_MS);
        }

        public void onTimer(long time, KeyedProcessFunction.OnTimerContext context, Collector out) throws Exception {
            Object all = times.value();
            if (all != null) {
                times.clear();
                out.collect(new Tuple4(Long.valueOf(0L), Long.valueOf(time), context.getCurrentKey(), all));
            }
        }
    }

    /** Events with what the other stream told of their key last. */
    static class Enrich extends KeyedCoProcessFunction {
        final ScheduledJob.Work work;
        transient ValueState profile;

        Enrich(ScheduledJob.Work work) {
            this.work = work;
        }

        public void open(OpenContext context) {
            profile = getRuntimeContext().getState(new ValueStateDescriptor("profile", Types.LONG));
        }

        public void processElement1(Object event, KeyedCoProcessFunction.Context context, Collector out) throws Exception {
            work.run();
            profile.value();
            out.collect(event);
        }

        public void processElement2(Object event, KeyedCoProcessFunction.Context context, Collector out) throws Exception {
            profile.update(((Tuple) event).getField(0));
        }
    }
}
