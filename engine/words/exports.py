"""Sentences of exports: what an engine cannot express, what only its program sets, what is assumed."""

from __future__ import annotations

__all__ = ["SENTENCES"]

SENTENCES = {
    "object_name": "The object's name, {name}, is made of the job's name: put in that of your cluster.",
    "fractions": "{engine} divides records evenly or by their keys, never by shares: {operator} was decided with "
    "{shares:comma}; {node} would get about {even:.0%} in place of {least:.0%}.",
    "share_on": "{share:.0%} on {node}",
    "no_vertex": "Without a counterpart on the engine, so that nothing is exported for it: {names:comma}.",
    "not_placed": "Placed nowhere by the decision, so that it stays as it is: {names:comma}.",
    "before_unknown": "Not known where it ran before, so that the reverse leaves it out: {names:comma}.",
    "start": "The decision rests on a start {start_s:duration} later: no setting delays it, so apply it then.",
    "memory_short": "State has too little memory: {nodes:listed 6} that other queries leave. Give it more first.",
    "memory": "Memory for state: {nodes:listed 6} that other queries leave.",
    "memory_of": "{node} {size:size} of {left:size}",
    "memory_unknown": "Whether state fits is not known: nobody states {what:listed}.",
    "state_of": "the state of {names:listed}",
    "memory_of_nodes": "the memory of {names:listed}",
    # Flink
    "vertex_id": "{operator} has {vertex!r} for a vertex id; Flink's have 32 hexadecimal digits.",
    "chained": "{operator} runs in one thread with another operator: their parallelism was decided as {known} and "
    "{count}; both get {most}.",
    "nodes": "Flink chooses the TaskManager of each slot itself: no setting binds an operator to one. The decision "
    "uses {nodes:comma}; look where the subtasks are after it was applied.",
    "slot_sharing_groups": "Only the program keeps operators apart, by slotSharingGroup(...) of the DataStream API: "
    "{places:comma}. It then needs {slots} slots. {now} SQL jobs have one; no setting changes it.",
    "place_in_group": "{operator} in {group}",
    "groups_unknown": "Which groups they have now is not told; one for all is assumed.",
    "one_group": "They have one group for all now, as Flink tells.",
    "several_groups": "They have {count} groups now: Flink tells ids, the names group-1 and so on are made of their "
    "order.",
    "replicas": "The decision uses {count} TaskManagers, {before} before. taskManager.replicas is obeyed in the "
    "standalone mode of the operator; in native mode Flink starts as many as it needs slots.",
    "mixed_places": "TaskManagers of this job differ in slots, cores or memory; a FlinkDeployment has one kind for "
    "all.",
    "slots": "{needed} slots a TaskManager in place of {slots}; cores and memory grow with them.",
    "overrides": "{setting} is read when the job starts. Flink from 2.0 on ignores it in application mode where "
    "FLINK-38770 is not mended: look at the vertices' parallelism afterwards, or send the call.",
    "rate_share": "The decision lets in {share:percent} of the events: Flink has no setting for it. Its sources, or "
    "what writes to them, have to hold back the rest.",
    "other_vertices": "No operator stands for {count} of its vertices; they keep their parallelism.",
    "scheduler_refuses": "The job runs under the scheduler {scheduler}, which refuses the call: that takes {setting}: "
    "{adaptive} in Flink's configuration. Until then apply the settings, which the job reads when it starts.",
    "adaptive_scheduler": "{alone}The call asks for exactly the decided parallelism, and Flink rescales with the "
    "job's next checkpoint. With fewer slots than that it is taken all the same, and the job goes on as before: look "
    "at its parallelism afterwards.",
    "adaptive_alone": "The call works with the adaptive scheduler alone ({setting}: {adaptive}). ",
    # Spark
    "share_unlimited": "The decision lets in {share:percent} of the events. A limit per trigger (maxOffsetsPerTrigger) "
    "follows from one source's events/s and the trigger's interval; one of them is not known here.",
    "share_limited": "{share:percent} of {rate_eps:g} events/s in {trigger_s:step} are {limit} a trigger, set by "
    'option("maxOffsetsPerTrigger", ...) of a Kafka source. It evens out bursts, and what is over waits in Kafka.',
    "executors": "Spark sends tasks to any executor with a free core: no setting binds an operator to one.",
    "shuffle_partitions": "Shuffles of a query have one number of partitions: {most} for all, where between {least} "
    "and {most} were decided. Sources have as many tasks as partitions to read.",
    "checkpoint": "A stateful query keeps the {setting} it began with in its checkpoint: another number counts from a "
    "new checkpoint on.",
    "restart": "Spark has no REST call that changes a running application: it starts anew with these settings. With "
    "spark.dynamicAllocation.enabled the number of executors is a beginning only.",
    "unset": "{setting} was not set or is not known: the reverse removes it.",
}
