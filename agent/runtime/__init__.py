"""The agent's runtime: records of collectors go in, numbered frames in a spool on disk come out.

It knows neither HTTP nor how records are collected. Around it, in one process:

    sources --poll--> Runtime --one record per epoch--> Spool <--unsent / acknowledged / committed-- sender

Use
---
    spool = Spool(state_dir / "spool", limit_bytes=config.spool_max_bytes)  # recovers what is on disk; `spool.life`
    runtime = Runtime(config, sources, spool)                               # seeks the sources to where the spool ends
    while not stopping.wait(runtime.tick()):                                # one sub-epoch each; returns the wait
        pass
    runtime.close()                                                         # ends the epoch; nothing is flushed

`Runtime.apply(config, sources)` may be called from any thread; it takes effect when the next epoch begins. `sources`
(id -> Source) are all the sources from then on; a new object is set to the position that the spool knows for its id.
Changed settings of adaptation, a changed weight or budget change nothing else. A query that was removed, or whose plan
changed, has its open windows sent with a final mark. `Runtime.state()` is the heartbeat's part of the runtime, as of
the last epoch, `unreported()` the rows of the epochs until `mark_reported()`; any thread may ask. `notify` is called
when a refined configuration was accepted, dropped or refused: the console should hear of it at once.

The sender, in a thread of its own: `Spool.unsent(most_bytes)` gives `(seq, frame bytes)` in order, beginning after the
last acknowledged one; `acknowledged(seq)` moves on, `rewind(seq)` goes back where the console lost a tail (it has
accepted up to `seq`), `committed(seq)` lets segments go. Frames stand in the spool, and are synced, before `unsent`
shows them.

Another writer of the same process (a relay) appends its own `WalRecord` with its own `writer` name to the same spool:
frames are numbered by the spool in one order. `Spool.recovered(writer)` returns its records, from its last snapshot
on.
"""

from agent.runtime.interface import Clock, RecordSource, SystemClock
from agent.runtime.runtime import Runtime
from agent.runtime.spool import Spool, WalRecord, WriterState

__all__ = [
    "Clock",
    "RecordSource",
    "Runtime",
    "Spool",
    "SystemClock",
    "WalRecord",
    "WriterState",
]
