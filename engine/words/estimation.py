"""Sentences of estimates: what bounds prove, and what noise and waits assume and leave out."""

from __future__ import annotations

__all__ = ["SENTENCES"]

SENTENCES = {
    # bounds
    "bounds_hold": "The upper ends of theorems 2 and 3 hold for mean costs and even arrivals; {proven}.",
    "bounds_limited": "Theorems 2 and 3 do not prove their upper ends here: {limits:listed}; {proven}.",
    "proven": "{proven_s:seconds} is proven for mean costs, however events fall within a subinterval",
    "unproven": "no upper bound is proven",
    "limited_by_policy": "nodes run another policy than stimulus time",
    "limited_by_sources": "{sources} sources share {servers} servers",
    "limited_by_links": "links have delays",
    "limited_by_loads": "loads are not sums",
    "limited_by_backlogs": "events wait where the horizon begins",
    "alarm": "Flow is {percent:.0f} % over Mace with {sources} sources on {nodes} nodes: the paper's bounds do not "
    "hold here",
    "alarm_alone": "Flow is while Mace is 0 with {sources} sources on {nodes} nodes: the paper's bounds do not hold "
    "here",
    # randomness
    "arrivals_inside": "Arrivals of {source} inside {step_s:step}: Poisson, around a rate that moves with dispersion "
    "{index:.1f} at {at_s:step}.",
    "arrivals_within": "Arrivals of {source} inside {step_s:step}: Poisson, around a rate that moves with dispersion "
    "{index:.1f} at {at_s:step}, within {shortest_s:step} to {at_s:step}.",
    "cost_variation": "Variation of the cost of {operator}<-{source}: {origin}.",
    "from_dispersion": "from its dispersion over {events:g} events, what comes of slow changes included",
    "from_batches": "from batches, what comes of slow changes included",
    "bytes_alike": "Bytes of an event on {link}: always the same.",
    "replicas_at_random": "Events of {operator} go to its replicas at random.",
    "noise_of_stimulus_time": "{policies}: the noise is that of stimulus time.",
    # waits
    "wait_window": "the window of {0}",
    "wait_watermark": "the watermark of {0}",
    "wait_lateness": "the allowed lateness of {0}",
    "wait_trigger": "the trigger of {0}",
    "wait_batch": "the batch of {0}",
    "wait_buffer": "buffers behind {0}",
    "wait_burst": "results of {0} that come at once",
    "wait_closing": "what {0} works on when its window closes",
    "wait_pause": "the pauses of {0} at checkpoints",
    "wait_commit": "the checkpoint that commits results of {0}",
    "wait_epoch": "the epoch of {0}",
    "windows_unknown": "Windows of {0:listed} are not described: their wait is not counted.",
    "windows_closing": "Windows of {0:listed}: what closing one costs is counted as its events come.",
    "windows_counting": "Windows of {0:listed} count all events: by key, rare keys wait longer.",
    "sessions_alike": "Sessions of {0:listed}: keys are taken to be alike; those with most events last longer.",
    "source_silent": "{source} has no events: unless it is marked idle, windows of {operator} do not close.",
    "batches_unstated": "Batches of {0:listed}: what they take beyond their work (planning, commits) is not stated.",
    "burst_elsewhere": "Results of {operator} come at once, up to {longest_s:seconds} of work on {server:server}: "
    "other queries there are counted as if they came spread out.",
}
