"""Sentences of what readers of engines find: one template for each kind, filled with names and numbers."""

from __future__ import annotations

__all__ = ["SENTENCES"]

SENTENCES = {
    # figures of the same thing that contradict each other
    "source_behind": "{came:,.0f} events/s came to {vertex} by the broker's offsets, {read:,.0f} events/s are read, "
    "though no reader holds it back: it does no more than that, so its cost is taken from the rate that it did, and "
    "what was not read waits.",
    "source_behind_busy_told": "{came:,.0f} events/s came to {vertex} by the broker's offsets, {read:,.0f} events/s "
    "are read, though no reader holds it back and it says that it is busy for {busy:percent}: it does no more than "
    "that, so its cost is taken from the rate that it did, and what was not read waits.",
    "offsets_below_read": "{came:,.0f} events/s came to {vertex} by the broker's offsets, but {read:,.0f} events/s "
    "are read: it catches up, or the query of offsets leaves out some of what it reads. What it reads counts as what "
    "comes.",
    "held_back_unbusy": "{vertex} holds back what it reads for {held:percent} of the time, and says that it is busy "
    "for {busy:percent}: it waits for something that is no busy time, so its cost is taken from the rate that it did.",
    "time_unaccounted": "Threads of {vertex} account for {share:percent} of the time that passed, by what they were "
    "busy, idle and held back; the rest is taken for busy.",
    "busy_beyond_time": "Threads of {vertex} say that they were busy for {busy_s:,.0f} s within {lived_s:,.0f} s: the "
    "longer time counts.",
    "busy_counter_broken": "Threads of {vertex} say that they were busy for {busy_s:,.0f} s within {lived_s:,.0f} s: "
    "a counter is broken, and no more than that counts.",
    "counts_differ": "{vertex} read {read:,.0f} events while {above} wrote {written:,.0f}: one of the two is counted "
    "otherwise. The larger number counts.",
    "cpu_beside": "The process of {place} used {cores:.1f} cores while threads of {job} there were busy {busy:.1f} at "
    "a time: other jobs, collection of garbage, compaction or clients of sources compute beside them. On a full host "
    "that comes on top of all costs here.",
    # arrivals and lags
    "arrivals_missing": "No arrivals of {vertex} are known.",
    "attempts_apart": "Arrivals of {vertex} are of its newest attempt, at {now:,.1f} events/s: {count:counted attempt} "
    "before it had a lower rate, the last {before:,.1f} events/s, and does not count.",
    "attempts_above": "{vertex} has {now:,.1f} events/s in its newest attempt: {count:counted attempt} before it had a "
    "higher rate, the last {before:,.1f} events/s, which counts for as long as its polls are kept.",
    "arrivals_coarse": "Arrivals of {vertex} are known by {step_s:step}: of a burst shorter than that only the mean is "
    "seen, so intervals are wide. Shorter intervals between polls, or offsets, tell more.",
    "source_backpressured": "{vertex} was held back by its readers for {held:percent} of the time: its rate is what "
    "the job could take, not what came. Offsets of the broker tell that.",
    "lag_missing": "Nothing tells of the lag of {group}.",
    "offsets_missing": "{count:counted partition} of {group} have no committed offset or no end: {partitions:listed}.",
    "ends_unread": "The lag of {group} in {count:counted partition} is not known, {partitions:listed}: {reason}.",
    "group_refused": "The offsets of {group} cannot be read: {reason}.",
    "groups_missing": "The broker has no consumer group: nothing tells of a lag.",
    "groups_left_out": "{count:counted group} more {count:is|are} there and not asked about: name those that matter "
    "(job_names).",
    "lag_incomplete": "Only {complete:percent} of the samples of {group} are there yet: its lag may be larger.",
    "consumer_state": "Consumer group {group} is {state}: {meaning}.",
    "consumer_state_told": "Consumer group {group} {state}.",
    # statistics
    "counters_missing": "{vertex} has no statistics yet: its counters were not told.",
    "polls_missing": "{vertex} has no statistics yet: no two polls of one attempt tell more.",
    "no_events": "No event came to {vertex} while its counters were read.",
    "vertex_ended": "{vertex} has ended: it takes nothing, and puts out nothing any more, unless the job begins anew.",
    "busy_time_missing": "What an event costs at {vertex} is not told. Old sources of Flink hide it, with all that is "
    "chained to them; a mapped operator needs a query of its cost. It is unknown, and so is what rests on it, until "
    "something tells: looks at their threads, or a step of load beside CPU counters of the TaskManagers.",
    "few_polls": "The statistics of {vertex} rest on {count:counted stretch|stretches} so far.",
    "counters_reset": "Counters of {vertex} began anew, or were not read for a while, {count:counted time}; nothing "
    "was counted across that.",
    "saturated": "{vertex} was busy all the time for {full_s:seconds}: more came than it could do.",
    "contended": "{contended_s:seconds} of the statistics of {job} are of a contended host: {reason}. Busy time is "
    "wall time, so costs are those of a host as contended as that.",
    "contended_least": "{contended_s:seconds} of the statistics of {job} are of a contended host: {reason}. Costs are "
    "those of a host as contended as that; on a quiet one an event may take as little as {least:percent} of it, by "
    "which the upper end of the capacity is told.",
    "sink_selectivity": "What {sinks:listed} {sinks:either puts|put} out is not counted; one result per event is "
    "assumed.",
    "source_counts_written": "{sources:listed} {sources:either counts|count} only what leaves: filters chained to a "
    "source are not seen.",
    # the document of a pool
    "memory_unknown": "No place tells the memory that state may take: whether the state of operators fits is not "
    "known.",
    "memory_of_executors": "Memory of an executor is what Spark gives to execution and storage; state may take as "
    "much.",
    "memory_of_managers": "Memory of a node is its TaskManager's task heap where a job keeps state on the heap, and "
    "its managed memory otherwise. State on disk (RocksDB, ForSt) takes none.",
    "threads_are_servers": "{place} runs {threads:counted thread} on {cores:g} cores, which use {share:percent} of a "
    "core while busy: they wait, for what they call or for the CPU, so each is a server of its own. Where others take "
    "the CPU, its costs grow with that.",
    "slots_are_servers": "{place} runs {threads:counted thread} on {cores:g} cores and they use {share:percent} of a "
    "core while busy: the threads of a slot share a server, {servers} in all.",
    "slots_contended": "{place} runs {threads:counted thread} on {cores:g} cores, of which {used:percent} are in use: "
    "they wait for a core, so all jobs there share {servers:counted server}.",
    "cost_by_cpu_time": "An event takes {low_s:seconds} to {high_s:seconds} of CPU at {vertex}, by the CPU time of its "
    "TaskManagers over several loads. What it waits for is not in that: it is the least that an event costs, and a "
    "step of load that takes the thread further tells the most.",
    "cost_by_load_step": "An event costs {vertex} {low_s:seconds} to {high_s:seconds}: the least by the CPU time of "
    "its TaskManagers over several loads, the most by the highest rate that it took.",
    "cost_by_threads": "An event costs {vertex} {low_s:seconds} to {high_s:seconds}: {working:,} of "
    "{count:counted look} at its threads found it at work. What a source waits for within itself is not in that.",
    "thread_looks_few": "What an event costs at {vertex} is not told by its threads yet: {working:,} of "
    "{count:counted look} found it at work. More of them will.",
    "chain_parts": "Of {count:counted look} that found {vertex} at work, these were of its operators: "
    "{parts:listed 9}.",
    "chain_parts_flames": "An event costs {vertex} {cost_s:seconds} by its busy time. Of {count:counted sample} of its "
    "flame graph at work, these were in its operators (90 %): {parts:listed 9}.",
    "flames_off": "Flame graphs are switched off (rest.flamegraph.enabled), so that nothing tells which operator of a "
    "chain of {job} its busy time is.",
    "threads_untold": "The threads of {place} cannot be looked at: {reason}. What old sources cost there is unknown "
    "until something else tells.",
    "threads_alike": "Several threads are named as those of {vertex}: which of them are its own is not known, so none "
    "tells its cost. Other names of jobs' sources would.",
    "threads_absent": "No thread is named as those of {vertex} are, so none tells its cost.",
    "cpu_of_several": "What an event costs at {vertices:listed 5} cannot be told by CPU time: other jobs run on the "
    "same TaskManagers.",
    "cpu_windows_few": "What an event costs at {vertices:listed 5} cannot be told by CPU time yet: too few stretches "
    "tell it.",
    "cpu_rates_together": "What an event costs at {vertices:listed 5} cannot be told apart by CPU time: their rates "
    "move together.",
    "cpu_load_alike": "What an event costs at {vertex} cannot be told by CPU time yet: its load has hardly moved. A "
    "step of load tells it.",
    "still_measuring": "Statistics of {job} cover {span_s:seconds}, under {loads:counted load}: they are rough, and "
    "{rest_s:duration} more are asked for before anything is admitted by them alone.",
    "marginal_cost": "One more event costs {vertex} {low_s:seconds} to {high_s:seconds}, by {loads:counted load} that "
    "it was measured under; an event costs it {now_s:seconds} now, with what it does however many come.",
    "one_load": "Costs of {count:counted operator} of {job} were measured under one load. Under more an event may cost "
    "up to {fall:percent} less, as was seen elsewhere: largest rates hold that in their interval. A second load tells.",
    "measured_over": "Statistics of {job} cover {span_s:duration}, under {loads:counted load}.",
    "slots_assumed": "{place} runs {threads:counted thread} on {cores:g} cores and how much CPU they use is not "
    "known: the threads of a slot share a server, {servers} in all. This may be too cautious.",
    "inputs_alike": "Flink counts the {count} inputs of {vertex} together; they are taken to be alike.",
    "selectivity_unknown": "How many events {vertex} puts out is not counted yet: estimates that rest on it are for a "
    "person until two polls differ.",
    "side_outputs": "Readers of {vertex} take different numbers of events: each as many as it counts itself.",
    "exchange_open": "{vertex} counts what it takes of {above} and of others together: {least:,.1f} to {most:,.1f} "
    "events/s are of {above}. The larger number counts.",
    # Spark
    "progress_of_none": "No progress of {job} is there.",
    "rows_unknown": "Spark does not tell what {vertex} puts out; one row per row is assumed.",
    "batches_empty": "No batch of {job} had rows.",
    "batches_slower": "The newest {count:counted batch|batches} of {job} took {share:percent} longer than those before "
    "them foretold: costs are those of the newest.",
    "batches_faster": "The newest {count:counted batch|batches} of {job} took {share:percent} less than those before "
    "them foretold: costs are those of the newest.",
    "fixed_time_unknown": "Batches of {job} are too few or too alike to tell fixed time from time per row: each is "
    "taken to be as long as it can be. Batches of different sizes tell.",
    "cost_at_source": "What reading, stateless operators and the sink of {job} cost is not told apart: it is counted "
    "at {sources:listed}.",
    "rows_dropped": "{job} drops rows that come later than its watermark; they are counted as read.",
    "falling_behind": "{job} falls behind its sources with each batch: the rows it reads are what it can take.",
    "progress_missing": "No progress of a streaming query is there. Spark's own address has none: a listener serves "
    "it or writes a file (docs/connections.md).",
    "executors_missing": "No executor is known: a query counts as one server, whatever it runs on.",
    "progress_left_out": "Left out of the progress: {fault}.",
    "progress_idle": "{count:counted progress|progress} of {names:listed 5}, none with rows: upload some while rows "
    "come.",
    "executor_without_cores": "Executor {executor} tells no cores; it is left out.",
    "executor_too_large": "Executor {executor} tells {cores:g} cores; up to {most:,} are taken; it is left out.",
    "order_assumed": "In which order the {count:counted operator} with state of {job} run is assumed.",
    "trigger_assumed": "No trigger of {job} is told, and its batches follow one another: each begins when one ends.",
    "trigger_measured": "The trigger of {job} is taken from the distance of its batches, {interval_s:seconds}.",
    # Prometheus
    "prometheus_warning": "Prometheus warns of {what}: {warning}",
    "partial_answer": "Not all that keeps the series of {what} has answered: numbers may be too low, and gaps no gaps.",
    "values_unreadable": "{count:counted value} of {what} are NaN or infinite, and count as missing.",
    "replicas_merged": "{count:counted series|series} of {what} are told by two Prometheus; each counts once.",
    "offsets_twice": "{count:counted partition} of arrivals are told by several exporters, of which one counts: max "
    "by (topic, partition) (…) in the query says the same.",
    "offsets_of_several": "Offsets of one topic's partition are those of {count} clusters, by their labels or values; "
    "all of them count. Name one of them in the query where that is wrong.",
    "offsets_jump": "Arrivals grew by {events:,.0f} within one step, {usual:,.0f} being usual: what joins a sum "
    "counts with its whole history, so that step is left out. A query by topic and partition tells them apart.",
    "metrics_missing": "Prometheus has no {prefix}{metrics:listed} of {job}.",
    "nothing_of_query": "Prometheus has nothing for {query}.",
    "threads_contradict": "{operator} takes {mean:.2g} threads by its rate and cost, and has {threads}: one of the "
    "three is wrong. The cost counts as it is told.",
    "hosts_unknown": "{count:counted host} tell their load; which of them runs what is not known, so none is used.",
    "gaps": "{count:counted step} of {step_s:step} are missing in the series of {series}.",
    # Flink
    "places_missing": "No TaskManager is known: operators have no node.",
    "part_unreadable": "{what} cannot be read and is left out: {path}: {fault}.",
    "parts_unreadable": "{what} cannot be read and is left out: {path}: {fault}, and {more} more.",
    "clock_ahead": "Flink's clock is {by_s:duration} ahead of the time of asking; Flink's is used.",
    "clock_behind": "Flink's clock is {by_s:duration} behind the time of asking; Flink's is used.",
    "version_unknown": "Flink {version} is none of those the reader was tried on (1.14 to 2.3); look at what it found.",
    "cores_unknown": "TaskManager {place} tells no CPU cores; 1 is assumed.",
    "cores_shared": "{count:counted TaskManager} on {host} report {claimed:g} cores together, the machine has "
    "{there:g}; {place} is given {cores:g}.",
    "cores_promised": "TaskManager {place} is set to {stated:g} cores, and its host or its quota has {cores:g}: these "
    "count, for all its slots together.",
    "cpu_unknown": "No TaskManager tells its CPU load: whether busy threads compute or wait is not known.",
    "job_not_asked": "Job {job} is listed, but its own answer is not there.",
    "job_gone": "Job {job} was listed, but is gone: {refusal}",
    "batch_job": "Job {job} is a batch job; only streaming jobs are imported.",
    "job_too_large": "Job {job} has {size}, so it is left out.",
    "job_waiting": "Job {job} is {state} and has no plan yet: it waits for resources, and is left out until it runs.",
    "buffer_timeout_assumed": "The buffer timeout of {job} is not told; Flink's own, {timeout} a hop, is assumed.",
    "kinds_guessed": "Kinds of the {count:counted operator} of {job} are guessed from their names.",
    "buffers_without_timeout": "Buffers of {job} leave only when full: how long events wait in them is not counted.",
    "subtasks_unplaced": "Where subtasks of {vertices:listed} run is not told: they have no node.",
    "plan_unread": "{part}. What that makes results of {vertex} wait for is in no estimate, so that a person has to "
    "decide on those that rest on it.",
    "window_unknown": "The window {window} of {vertex} has no fixed size: its wait is not counted.",
    "early_results": "Results of {vertex} leave every {early_s:step}, before its window of {size_s:step} closes: the "
    "first of them count, which those that follow correct.",
    "results_by_event": "Results of {vertex} leave with each event, before its window of {size_s:step} closes: the "
    "first of them count, which those that follow correct.",
    "watermark_assumed": "How late watermarks are at the window of {vertex} is not told; {delay_s:step} is assumed, "
    "Flink's own time from one to the next.",
    "window_time_assumed": "Whether the window of {vertex} closes by event time or by the clock is not told; the "
    "clock is assumed.",
    "checkpoints_unmeasured": "Checkpoints of {job} are to be taken every {interval_s:step}, and none is complete yet: "
    "for how long they stop operators is not known.",
    "checkpoints_pause": "Each checkpoint of {job} stops {vertex} for {mean_s:seconds} on average and {most_s:seconds} "
    "at most, by the newest {checkpoints:counted checkpoint}: {share:.2%} of its time, which its costs hold, and which "
    "events wait for every {interval_s:step}.",
    "results_commit": "Results of {vertex} are committed at checkpoints: each waits for the next one to be complete.",
    "commits_assumed": "{vertex} has a committer, and what it has committed is not told yet: each of its results is "
    "taken to wait for a checkpoint to be complete. Where the sink delivers at least once, none does.",
    "results_uncommitted": "The committer of {vertex} has committed nothing over {checkpoints:counted checkpoint}, "
    "while {written:,.0f} results were written: they are seen when they leave, and wait for no checkpoint.",
    "commits_never": "{vertex} has a committer, and its job takes no checkpoints: results of a sink that delivers "
    "exactly once are never seen. The estimate is that of one that delivers at least once.",
    "checkpoint_missing": "No completed checkpoint of {job} is told: how much state its operators hold is not known.",
    "checkpoint_whole": "Checkpoint {checkpoint:.0f} of {job}{total:in_all} is not told by operator: which holds how "
    "much is not known.",
    "state_incremental": "Checkpoint {checkpoint:.0f} of {job}{total:in_all} may be incremental, and this Flink tells "
    "only what it wrote: how much state there is in full is not known.",
    "state_unbounded": "{keepers:listed} of {job} {keepers:either keeps|keep} every row for good: no time to live is "
    "told. By the newest {checkpoints:counted checkpoint}, over {span_s:duration}, state of {newest:size} grows by "
    "{hour:size} an hour, to {day:size} in a day; what a row costs grows with it, and estimates hold for now alone.",
    "state_unbounded_unmeasured": "{keepers:listed} of {job} {keepers:either keeps|keep} every row for good: no time "
    "to live is told. State grows as long as the job runs, and what a row costs with it; by how much an hour, "
    "checkpoints with full sizes would tell.",
    "state_measured": "State of {job} is measured: full sizes of checkpoint {checkpoint:.0f}{total:in_all}, kept "
    "{where}. Objects on the heap take more than what a checkpoint writes of them.",
}
