"""Sentences of rewritten plans: what was done, what it takes for granted, and what stands in the way."""

from __future__ import annotations

__all__ = ["SENTENCES"]

SENTENCES = {
    # steps
    "moved_before": "filter `{0}` moved before {passed:quoted}",
    "moved_below": "filter `{0}` moved below join `{1}`",
    "joins_exchanged": "`{0}` meets `{1}` in `{2}` before `{3}` in `{4}`",
    "fused": "`{0}` and `{1}` fused into one operator",
    # assumptions
    "filters_independent": "how many events each filter lets through does not depend on the filters before it",
    "outputs_independent": "how many outputs `{0}` makes of an event does not depend on the filter",
    "meeting_independent": "what `{0}` lets through does not depend on which events meet in `{1}`",
    "matches_independent": "whether two events match does not depend on what else they match (independence); a sample "
    "would tell",
    # obstacles
    "count_window": "{0} counts events in a window, and other events would fall into it",
    "kind": "{0} is {kind:article}",
    "kind_unstated": "what kind of operator {0} is is not stated",
    "state_unstated": "whether {0} keeps state is not stated",
    "state": "{0} keeps state",
    "streams": "{0} reads {count} streams",
    "model": "the statistics of {0} are a model of its rate",
    "writes_unstated": "what {0} writes is not stated",
    "reads_unstated": "what {0} reads is not stated",
    "reads_written": "it reads {fields:quoted}, which {0} writes",
    "reads_nothing": "{0} reads no field, so it belongs to neither side",
    "joined_streams": "{0} joins {count} streams; the rule is for two",
    "window_unstated": "the window of {0} is not stated",
    "fields_unstated": "which fields the events of {0} hold is not stated",
    "either_side": "{fields:quoted} may come from either side",
    "keys_unstated": "the keys of {0} are not stated",
    "windows_differ": "which events meet depends on the order, unless both windows are tumbling, by time and of one "
    "size",
    "key_missing": "{fields:quoted} is the key, and not both {0} and {1} have it",
    "fields_shared": "{fields:quoted} is on several of the streams",
    "fields_of_pairs": "{fields:quoted} is made from the pairs, which would be others",
    "no_events": "no events meet there, so nothing is known of how many would",
    "other_readers": "{readers:listed} read {0}, and all of them would get less",
    "outside_reader": "{0}, which is no part of the query, reads {1}",
    "queue_unstated": "the cycles that a queue between two operators costs are not stated",
    "other_cores": "they run on different cores, and one core would have to do the work of both",
    "long_name": "the name of the two would be longer than {count} characters",
}
