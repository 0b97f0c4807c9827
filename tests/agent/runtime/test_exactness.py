"""Exactness: the invariant at every proxy and the query's exact result hold under every fault."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.config import AgentConfig
from agent.runtime import Runtime, Spool
from engine.dataflow.arrow.kernels import whole
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import POLICIES, ScheduleSettings
from tests.agent.reference import ReferenceProcessor, rows_of
from tests.agent.runtime.configs import agent_config, query_config
from tests.agent.runtime.doubles import ManualClock, TableSource
from tests.agent.runtime.epochs import by_hand
from tests.agent.runtime.pipelines import AGENT, probe_records, probes_pipeline
from tests.agent.runtime.query.test_refined_config import document
from tests.thoroughness import examples

QUERY = "here/probes"
PLANS = (probes_pipeline(), probes_pipeline(where="rtt_us < 5000", slide_s=5))

shares = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)
factors = st.tuples(shares, shares, shares, shares)
budgets = st.sampled_from([0.0, 0.02, 0.05, 0.1]) | st.floats(0, 0.5)  # in small ones records wait
actions = st.one_of(
    st.tuples(st.just("epochs"), st.integers(1, 4)),
    st.tuples(st.just("factors"), factors),
    st.tuples(st.just("method"), st.sampled_from(["scalar", "best-op"])),
    st.tuples(st.just("refined"), st.tuples(st.integers(1, 5), factors)),
    st.tuples(st.just("plan"), st.integers(0, 1)),
    st.tuples(st.just("budget"), budgets),
    st.tuples(st.just("schedule"), st.tuples(st.sampled_from(POLICIES), st.sampled_from([0.0, 0.1, 0.33, 2.0]))),
    st.tuples(st.just("send"), st.integers(1, 30)),
    st.tuples(st.just("commit"), st.floats(0, 1)),
    st.tuples(st.just("rewind"), st.floats(0, 1)),
    st.tuples(st.just("kill"), st.integers(0, 9)),
    st.tuples(st.just("clock"), st.floats(-100, 100)),
)

moves = st.one_of(
    st.tuples(st.just("epochs"), st.integers(1, 2)),
    st.tuples(st.just("kill"), st.integers(0, 9)),
    st.tuples(st.just("plan"), st.integers(0, 1)),
    st.tuples(st.just("budget"), st.sampled_from([0.0, 0.01, 0.02])),
    st.tuples(st.just("send"), st.integers(1, 30)),
    st.tuples(st.just("commit"), st.floats(0, 1)),
)

NAMED = ("factors", "method", "refined", "plan", "budget", "schedule", "clock")  # also of fields


class Story:
    """One agent whose process dies now and then, and a console that takes what it sends."""

    def __init__(
        self,
        directory: Path,
        records: pa.Table,
        sizes: list[int],
        chance: random.Random,
        limit_bytes: int,
        budget: float = 0.3,
    ) -> None:
        self.directory, self.records, self.sizes, self.chance = directory, records, sizes, chance
        self.limit_bytes = limit_bytes
        self.clock = ManualClock(cpu_step_ns=2_000_000)
        self.adaptation, self.refined, self.plan, self.budget = by_hand(1.0, 0.5, 1.0, 0.7), None, 0, budget
        self.schedule = ScheduleSettings(backlog_most_s=20.0)
        self.versions = [0]  #: that were in force, one after the other
        self.ranges: list[list[int]] = [[0, 0]]  #: from which record on which plan
        self.reference = ReferenceProcessor(PLANS)
        self.sent, self.waited = 0, False
        self.start()

    def settings(self) -> AgentConfig:
        query = query_config(QUERY, PLANS[self.plan], self.adaptation, self.refined)
        more = {"sub_epochs": 3, "batch_records": 20, "checkpoint_share": 0.5, "schedule": self.schedule}
        return agent_config(1, AGENT, (query,), budget_cores=self.budget, **more)

    def start(self) -> None:
        self.spool = Spool(self.directory, self.limit_bytes, sync=False)
        self.source = TableSource(self.records, self.sizes)
        self.runtime = Runtime(self.settings(), {"probes": self.source}, self.spool, self.clock, quota=lambda: 64.0)
        for span in self.ranges:  # what was lost with the process is read again, by the plan of now
            span[0] = min(span[0], self.source.position_at)

    def tell(self, script: list[tuple[str, object]]) -> None:
        for action, value in script:
            getattr(self, f"{action}_" if action in NAMED else action)(value)
        self.finish()

    @property
    def waiting(self) -> int:
        """Records in queues."""
        return sum(chain.waiting() for chain in self.runtime._registry.pipelines.values())

    def epochs(self, count: int) -> None:
        for _ in range(count):
            if not self.runtime.run_epoch():
                self.send(10**6)
                self.commit(1.0)
            self.waited = self.waited or self.waiting > 0
            self.clock.pass_s(1)
            (query,) = self.runtime.state()["queries"]
            if query["refined"] is not None and query["refined"]["version"] != self.versions[-1]:
                self.versions.append(query["refined"]["version"])

    def apply(self) -> None:
        self.runtime.apply(self.settings())

    def factors_(self, values: tuple[float, ...]) -> None:
        self.adaptation, self.refined = by_hand(*values), None
        self.apply()

    def method_(self, name: str) -> None:
        """A controller moves load factors from now on, each epoch if it likes."""
        self.adaptation, self.refined = AdaptationSettings(method=name), None
        self.apply()

    def refined_(self, says: tuple[int, tuple[float, ...]]) -> None:
        """A refined configuration that may be old, torn in its checksum for some, or of the other plan."""
        version, values = says
        self.refined = document(version, *values, plan=PLANS[0].digest, valid_from_us=self.clock.wall_us())
        if values[0] == 0.0:
            self.refined["checksum"] = "0" * 64
        self.apply()

    def plan_(self, number: int) -> None:
        self.plan = number
        self.ranges.append([self.source.position_at, number])
        self.apply()

    def budget_(self, cores: float) -> None:
        self.budget = cores
        self.apply()

    def schedule_(self, says: tuple[str, float]) -> None:
        """Another order of queries, another limit for what waits."""
        policy, backlog_periods = says
        self.schedule = replace(self.schedule, policy=policy, backlog_periods=backlog_periods)
        self.apply()

    def clock_(self, seconds: float) -> None:
        self.clock.step_s(seconds)

    def send(self, count: int) -> None:
        for (seq, data), _ in zip(self.spool.unsent(2**30), range(count), strict=False):
            self.reference.take(data)
            self.sent = max(self.sent, seq)
            self.spool.acknowledged(seq)

    def commit(self, share: float) -> None:
        self.spool.committed(int(self.spool.acked_seq * share))

    def rewind(self, share: float) -> None:
        committed = self.spool.committed_seq
        self.spool.rewind(committed + int((self.spool.acked_seq - committed) * share))

    def kill(self, ticks: int) -> None:
        """The process ends after some sub-epochs of an epoch, in the middle of a write perhaps."""
        for _ in range(ticks % 3):
            self.runtime.tick()
        newest = max(self.directory.glob("*.wal"))
        with newest.open("ab") as file:
            file.write((b"SLW1" + self.chance.randbytes(400))[: self.chance.randrange(400)])
        self.spool.close()
        self.start()

    def finish(self) -> None:
        while not self.source.done or self.waiting:
            self.epochs(1)
        self.epochs(2)
        self.send(10**6)

    def check(self) -> None:
        """Every plan has had its records, each once, and its windows were open for them."""
        count, reference = self.records.num_rows, self.reference
        ends = [start for start, _ in self.ranges[1:]] + [count]
        for number, plan in enumerate(PLANS):
            mine = [
                self.records.slice(start, max(end - start, 0))
                for (start, which), end in zip(self.ranges, ends, strict=True)
                if which == number
            ]
            expected = whole(plan, pa.concat_tables([self.records.slice(0, 0), *mine]))
            assert rows_of(reference.result(QUERY, plan)) == rows_of(expected)
        assert reference.total("records_in", entry=0) == count
        assert reference.late == 0
        assert reference.epochs == sorted(set(reference.epochs))
        assert self.versions == sorted(set(self.versions)), "an older refined configuration was taken"
        self.spool.close()


@given(
    count=st.integers(0, 500),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    script=st.lists(actions, max_size=25),
    seed=st.integers(0, 2**16),
    exponent=st.integers(15, 17),
    budget=budgets,
)
@example(
    count=414,
    sizes=[21, 24, 35, 22, 38],
    script=[("method", "scalar"), ("epochs", 6), ("clock", -73.2), ("kill", 0), ("epochs", 2)],
    seed=0,
    exponent=15,
    budget=0.056,
).via("a start after the clock was put back, with windows that wait")
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_results_and_invariant_whatever_happens(tmp_path_factory, count, sizes, script, seed, exponent, budget):
    records = probe_records(PLANS[0], count, seed=seed)
    story = Story(tmp_path_factory.mktemp("spool"), records, sizes, random.Random(seed), 2**exponent, budget)
    story.tell(script)
    story.check()


@given(
    script=st.lists(moves, min_size=5, max_size=20),
    seed=st.integers(0, 2**16),
    budget=st.sampled_from([0.0, 0.01, 0.02]),
)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_backlog_survives_any_fault(tmp_path_factory, script, seed, budget):
    """With next to no budget there is always something that waits."""
    records = probe_records(PLANS[0], 600, seed=seed)
    story = Story(tmp_path_factory.mktemp("spool"), records, [10, 3, 17], random.Random(seed), 2**15, budget)
    story.schedule_(("klink", 2.0))
    story.epochs(2)
    story.tell(script)
    story.check()
    assert story.waited, "nothing did"


@given(cut=st.floats(0, 1), seed=st.integers(0, 1000))
@settings(max_examples=examples(100), deadline=None)
def test_partly_written_epoch_is_run_again(tmp_path_factory, cut, seed):
    """A record is cut at any byte before anything of it was sent."""
    directory, records = tmp_path_factory.mktemp("spool"), probe_records(PLANS[0], 300, seed=seed)
    story = Story(directory, records, [10], random.Random(seed), 2**20)
    story.epochs(4)
    story.send(10**6)
    before = max(directory.glob("*.wal")).stat().st_size
    story.epochs(1)
    newest = max(directory.glob("*.wal"))
    after = newest.stat().st_size
    story.spool.close()
    os.truncate(newest, before + int(cut * (after - before)) if after > before else after)
    story.start()
    story.finish()
    assert rows_of(story.reference.result(QUERY, PLANS[0])) == rows_of(whole(PLANS[0], records))
    story.spool.close()
