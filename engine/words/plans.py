"""Sentences of rewritten plans: what was done, what it takes for granted, and what stands in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.words import listed

if TYPE_CHECKING:
    from engine.plans.answer import PlanFact

__all__ = ["plan_words"]


def plan_words(fact: PlanFact) -> str:
    """A step, an assumption or an obstacle as a clause."""
    name, fields = next(iter(fact.names), ""), ", ".join(f"`{field}`" for field in fact.fields)
    quoted = [f"`{other}`" for other in fact.names]
    match fact.kind:
        case "moved_before":
            return f"filter {quoted[0]} moved before {', '.join(quoted[1:])}"
        case "moved_below":
            return f"filter {quoted[0]} moved below join {quoted[1]}"
        case "joins_exchanged":
            return f"{quoted[0]} meets {quoted[1]} in {quoted[2]} before {quoted[3]} in {quoted[4]}"
        case "fused":
            return f"{quoted[0]} and {quoted[1]} fused into one operator"
        case "filters_independent":
            return "how many events each filter lets through does not depend on the filters before it"
        case "outputs_independent":
            return f"how many outputs {quoted[0]} makes of an event does not depend on the filter"
        case "meeting_independent":
            return f"what {quoted[0]} lets through does not depend on which events meet in {quoted[1]}"
        case "matches_independent":
            return (
                "whether two events match does not depend on what else they match (independence); a sample would tell"
            )
        case "count_window":
            return f"{name} counts events in a window, and other events would fall into it"
        case "kind":
            kind = fact.fields[0]
            return f"{name} is {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        case "kind_unstated":
            return f"what kind of operator {name} is is not stated"
        case "state_unstated":
            return f"whether {name} keeps state is not stated"
        case "state":
            return f"{name} keeps state"
        case "streams":
            return f"{name} reads {fact.count} streams"
        case "model":
            return f"the statistics of {name} are a model of its rate"
        case "writes_unstated":
            return f"what {name} writes is not stated"
        case "reads_unstated":
            return f"what {name} reads is not stated"
        case "reads_written":
            return f"it reads {fields}, which {name} writes"
        case "reads_nothing":
            return f"{name} reads no field, so it belongs to neither side"
        case "joined_streams":
            return f"{name} joins {fact.count} streams; the rule is for two"
        case "window_unstated":
            return f"the window of {name} is not stated"
        case "fields_unstated":
            return f"which fields the events of {name} hold is not stated"
        case "either_side":
            return f"{fields} may come from either side"
        case "keys_unstated":
            return f"the keys of {name} are not stated"
        case "windows_differ":
            return "which events meet depends on the order, unless both windows are tumbling, by time and of one size"
        case "key_missing":
            return f"{fields} is the key, and not both {name} and {fact.names[1]} have it"
        case "fields_shared":
            return f"{fields} is on several of the streams"
        case "fields_of_pairs":
            return f"{fields} is made from the pairs, which would be others"
        case "no_events":
            return "no events meet there, so nothing is known of how many would"
        case "other_readers":
            return f"{listed(fact.names[1:])} read {name}, and all of them would get less"
        case "outside_reader":
            return f"{name}, which is no part of the query, reads {fact.names[1]}"
        case "queue_unstated":
            return "the cycles that a queue between two operators costs are not stated"
        case "other_cores":
            return "they run on different cores, and one core would have to do the work of both"
        case "long_name":
            return f"the name of the two would be longer than {fact.count} characters"
    raise ValueError(f"{fact.kind} has no sentence")
