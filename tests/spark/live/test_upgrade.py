"""Upgrade from a release that kept the state in files of its own, of which `data/state_of_before` is one.

Two queries of `tests.spark.live.agents`: closed and open windows of both, a plan that was asked for while the console
was away, frames behind a gap, and results that were not posted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from agent.wire import broker
from engine.dataflow.pipeline import Pipeline
from spark_jobs.checkpoint import Checkpoint, NewerCheckpoint
from spark_jobs.console import ConsoleClient
from spark_jobs.planner import Planner
from tests.servers import RedisServer
from tests.spark.live.agents import SECOND, SLIDING, START_US, SmallAgent
from tests.spark.live.consoles import small_console
from tests.spark.live.folders import LocalFolder
from tests.spark.live.world import World

DATA = Path(__file__).parent / "data" / "state_of_before"
PAIRS_QUERY, SLIDING_QUERY, THIRD_QUERY = "here/pairs", "here/sliding", "here/third"


@pytest.fixture
def world(redis_server: RedisServer, tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "stream"
    shutil.copytree(DATA, folder)
    (folder / "checkpoint-0" / "offsets").mkdir(parents=True)
    with small_console() as console:
        yield World(redis_server.url, console, folder)


@contextmanager
def opened(world: World) -> Iterator[tuple[Checkpoint, redis.Redis]]:
    with redis.Redis.from_url(world.url) as client:
        yield Checkpoint.open(LocalFolder(world.folder / "keyed"), world.folder, client), client


def upgrade(world: World, pairs: Pipeline, sliding: Pipeline) -> Checkpoint:
    """The new release has started on the folder; `world.batches` goes on from its steps."""
    third = Pipeline.parse({**SLIDING, "operators": SLIDING["operators"][:2]})  # type: ignore[index]
    world.console.add(PAIRS_QUERY, pairs, ["a0", "a1"], started_us=1)
    world.console.add(SLIDING_QUERY, sliding, ["b0"], started_us=1)
    world.console.add(THIRD_QUERY, third, ["c0"], started_us=1)
    with opened(world) as (checkpoint, _):
        world.batches = checkpoint.base
        return checkpoint


def agents_of_before(pairs: Pipeline, sliding: Pipeline) -> tuple[SmallAgent, SmallAgent, SmallAgent]:
    """As they stood when the old release ended: the same frames as it has seen."""
    a0, a1 = SmallAgent("a0", PAIRS_QUERY, pairs), SmallAgent("a1", PAIRS_QUERY, pairs)
    b0 = SmallAgent("b0", SLIDING_QUERY, sliding)
    for agent, epochs in ((a0, 12), (a1, 12), (b0, 10)):
        agent.run(epochs)
    return a0, a1, b0


def test_closed_windows_stay_closed_and_open_ones_name_the_agents(
    world: World, pairs: Pipeline, sliding: Pipeline
) -> None:
    checkpoint = upgrade(world, pairs, sliding)
    assert checkpoint.message.startswith("the state of an earlier release ends with step 2: its 4 positions, 2 ")
    assert "18 waiting frames are taken over; 4 windows that were open lack" in checkpoint.message
    a0, a1, _ = agents_of_before(pairs, sliding)
    world.put([*a0.sent[-6:], *a1.sent[-6:]])  # not trimmed when the old release ended
    world.send(a0.run(8), a1.run(8))
    sink = world.process()
    assert sink.facts.count("duplicates") == 12
    assert world.positions() | {("a0", "l1"): a0.seq, ("a1", "l1"): a1.seq} == world.positions()
    posted = [frame for frame in world.console.results if frame.query == PAIRS_QUERY]
    steps = {frame.extra["window_us"]: frame.extra["batch"] for frame in posted}
    # the outbox of before holds the window at 5 s; it is posted once, the one at 0 s was, and 10 s was open
    assert [(begin - START_US) // SECOND for begin in steps] == [5, 10, 15]
    assert steps[START_US + 5 * SECOND] == 2 < steps[START_US + 10 * SECOND]
    latest = world.console.latest(PAIRS_QUERY)
    first, whole = latest[START_US + 10 * SECOND], latest[START_US + 15 * SECOND]
    assert (first.extra["complete"], first.extra["missing"]) == (False, ["a0", "a1"])
    assert (whole.extra["complete"], whole.extra["missing"]) == (True, [])
    assert first.extra["records"] < whole.extra["records"]
    assert min(frame.seq for frame in posted if frame.extra["batch"] > 2) > max(
        frame.seq for frame in posted if frame.extra["batch"] == 2
    )


def test_frames_that_waited_are_worked_off_once(world: World, pairs: Pipeline, sliding: Pipeline) -> None:
    upgrade(world, pairs, sliding)
    _, _, b0 = agents_of_before(pairs, sliding)
    world.process()
    flow = world.flow(THIRD_QUERY, world.console.queries[2]["plan"])
    assert flow.agents["c0"].watermark_us == START_US + 2 * SECOND  # waited for their plan
    assert len(world.waiting()) == 8  # behind a gap still
    world.put([frame for frame in b0.sent if frame.seq == 28])
    world.process()
    assert world.waiting() == []
    assert world.positions()["b0", "l1"] == 36


def test_start_that_was_cut_off_begins_over_and_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "note", crash)
        with pytest.raises(KeyboardInterrupt), opened(world):
            pass
    assert len(list(world.folder.glob("states/*.state"))) == 2
    with monkeypatch.context() as patched:
        patched.setattr("spark_jobs.checkpoint._drop_earlier_state", crash)
        with pytest.raises(KeyboardInterrupt), opened(world):
            pass
    with opened(world) as (checkpoint, client):
        assert (checkpoint.base, checkpoint.message) == (2, "")
        assert broker.generation_progress(client, "a0", "l1").committed_seq == 44
    assert not [*world.folder.glob("states"), *world.folder.glob("checkpoint-*")]


@pytest.mark.parametrize(("damaged", "words"), [(1, "ends with step 1"), (2, "no state of the earlier release can be")])
def test_damaged_states_are_skipped_and_steps_go_on(world: World, damaged: int, words: str) -> None:
    for path in sorted(world.folder.glob("states/*.state"))[-damaged:]:
        path.write_bytes(path.read_bytes()[:-100])
    with opened(world) as (checkpoint, _):
        assert words in checkpoint.message
        assert checkpoint.base == 2, "the console knows step 2"


def test_plan_of_before_is_gone_by_while_the_console_is_away(world: World) -> None:
    with redis.Redis.from_url(world.url) as client:
        planner = Planner(world.folder / "plans", ConsoleClient("http://127.0.0.1:9", "a-token"), client)
        assert planner.known and {query for query, _ in planner.live} == {PAIRS_QUERY, SLIDING_QUERY}
        planner.begin()
    with redis.Redis.from_url(world.url) as client:
        again = Planner(world.folder / "plans", ConsoleClient("http://127.0.0.1:9", "a-token"), client)
        assert again.live == planner.live


# -- run.json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stream"


def commit(folder: Path, run: int, batch: int) -> None:
    path = folder / "keyed" / f"checkpoint-{run}" / "commits" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v1")


@pytest.mark.parametrize("text", [None, "", '{"format": 1, "ru', "{}"])
def test_lost_or_damaged_run_file_is_read_from_its_copy(
    redis_server: RedisServer, folder: Path, text: str | None
) -> None:
    folder.mkdir()
    root = LocalFolder(folder / "keyed")
    with redis.Redis.from_url(redis_server.url) as client:
        made = Checkpoint.open(root, folder, client).successor(7)
        commit(folder, made.run, 4)
        path = folder / "keyed" / "run.json"
        path.write_text(text) if text is not None else path.unlink()
        again = Checkpoint.open(root, folder, client)
    assert (again.run, again.last_step(), again.message) == (1, made.base + 5, "")


def test_steps_go_on_after_a_crash_and_the_loss_of_the_checkpoint(redis_server: RedisServer, folder: Path) -> None:
    folder.mkdir()
    root = LocalFolder(folder / "keyed")
    with redis.Redis.from_url(redis_server.url) as client:
        made = Checkpoint.open(root, folder, client)
        for batch in range(1_500):
            made.committed(batch)
        shutil.rmtree(folder / "keyed")
        again = Checkpoint.open(root, folder, client)
    assert again.base > 1_500
    assert again.message.startswith("the checkpoint is lost")


def test_checkpoint_of_a_later_release_is_refused_and_left_alone(redis_server: RedisServer, folder: Path) -> None:
    root = LocalFolder(folder / "keyed")
    text = '{"format": 99, "run": 0, "base": 0, "step": 3}'
    root.write("run.json", text)
    with redis.Redis.from_url(redis_server.url) as client, pytest.raises(NewerCheckpoint) as refused:
        Checkpoint.open(root, folder, client)
    assert f"the state in {root.name} is of a newer release (format 99; this one reads up to 1)" in str(refused.value)
    assert root.read("run.json") == text
