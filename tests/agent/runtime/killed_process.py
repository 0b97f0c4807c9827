"""Process that runs the runtime until it is killed or done: ``killed_process.py DIRECTORY SENT ROWS [endless]
[broke]``.

With `endless` it is never done, however late the kill comes; `broke` it has no CPU budget, and all that comes waits.

What it sends goes into the file SENT as it would over the wire; a frame is acknowledged once it is written.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from agent import cli
from agent.runtime import Runtime, Spool
from engine.klink.settings import ScheduleSettings
from tests.agent.runtime.configs import agent_config, query_config
from tests.agent.runtime.doubles import TableSource
from tests.agent.runtime.epochs import by_hand
from tests.agent.runtime.pipelines import AGENT, probe_records, probes_pipeline


def main(directory: Path, sent: Path, rows: int, *, endless: bool, broke: bool) -> None:
    pipeline = probes_pipeline()
    source = TableSource(probe_records(pipeline, rows), [rows // 200])
    spool = Spool(directory, 2**20)
    query = query_config("here/probes", pipeline, by_hand(1.0, 0.8, 0.9, 0.7))
    schedule = ScheduleSettings(backlog_most_s=0.3)
    budget_cores = 0.0 if broke else 1.0
    config = agent_config(1, AGENT, (query,), epoch_s=0.05, sub_epochs=5, budget_cores=budget_cores, schedule=schedule)
    runtime = Runtime(config, {"probes": source}, spool)
    over = threading.Event()
    sender = threading.Thread(target=send, args=(spool, sent, over))
    sender.start()
    chains = runtime._registry.pipelines.values()
    while endless or not source.done or any(chain.waiting() for chain in chains):
        over.wait(runtime.tick())
    runtime.close()
    runtime.run_epoch()
    over.set()
    sender.join()


def send(spool: Spool, sent: Path, over: threading.Event) -> None:
    with sent.open("ab", buffering=0) as file:
        while True:
            last = over.wait(0.01)
            for seq, data in spool.unsent(50_000):
                file.write(data)
                spool.acknowledged(seq)
                spool.committed(seq - 10)
            if last and not spool.unsent_frames:
                return


if __name__ == "__main__":
    cli.block_pandas()
    main(
        Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), endless="endless" in sys.argv, broke="broke" in sys.argv
    )
