"""Sources and live queries in the browser: an agent joins, a query from a template goes live, a link turns slow.

The stream processor is played by what it posts; the loop with the real one has a test of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

from agent.wire import Frame, FrameKind, batch_bytes, encode_frame
from engine.dataflow import Pipeline
from tests.e2e.installation import ROOT, Api, Installation
from tests.servers import PATIENCE_S, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SLUG = "edge"
QUERY = "link-latency"
WIDTH_US = 10_000_000
_TOO_WIDE_PX = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def stream_token(console: Installation) -> str:
    command = [sys.executable, "manage.py", "stream_token"]
    done = subprocess.run(command, cwd=ROOT, env=console.env, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def send(console: Installation, path: str, body: bytes, kind: str, token: str = "") -> Any:
    request = Request(f"{console.url}/api/v1/{path}", data=body, method="POST", headers={"Content-Type": kind})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read() or "null")


def planned(console: Installation, token: str) -> dict[str, Any]:
    """Entry of the query in the stream processor's plan."""
    found = Api(console.url, token).get("stream-processor/plan")["queries"]
    return next(row for row in found if row["query"] == f"{SLUG}/{QUERY}")


def enrol(page: Page, console: Installation) -> dict[str, str]:
    """From the dialog's command to an agent that has joined."""
    page.goto(f"/c/{SLUG}/sources/")
    expect(page.get_by_text("No agent has joined yet", exact=True)).to_be_visible()
    page.get_by_role("button", name="Enrol an agent").click()
    page.locator("#enrol-dialog [name=note]").fill("rack r7")
    page.get_by_role("button", name="Make the token").click()
    command = page.locator("#join-command").inner_text()
    secret = re.search(r"sle_[\w-]+", command)
    assert secret is not None, command
    facts = {"token": secret[0], "name": "edge-1", "host": "edge-1.local", "version": "1", "cores": 2}
    body = json.dumps({**facts, "capacity_cps": 1e9}).encode()
    return send(console, "agents/enrol", body, "application/json")


def report(console: Installation, agent: dict[str, str]) -> None:
    says = {
        "life": "a1",
        "version": "1",
        "time": time.time(),
        "uptime_s": 3.0,
        "rss_bytes": 90_000_000,
        "cpu_cores": 0.05,
        "budget_cores": 0.2,
        "spool": {"frames": 0, "bytes": 0, "limit_bytes": 10_000_000, "state": "ok"},
        "sent_seq": 0,
        "acked_seq": 0,
        "config_version": 0,
        "queries": [],
        "collectors": [],
        "faults": [],
    }
    send(console, f"agents/{agent['agent']}/heartbeat", json.dumps(says).encode(), "application/json", agent["secret"])


def go_live(page: Page) -> None:
    """From a template over its admission to the Live tab."""
    page.goto(f"/c/{SLUG}/sources/")
    page.get_by_role("link", name="New live query").click()
    page.get_by_role("link", name=re.compile("Latency between servers")).click()
    page.locator("[name=name]").fill(QUERY)
    page.locator("[name=source]").fill("probes")
    page.get_by_role("button", name="Describe and preview admission").click()
    page.get_by_role("button", name="Preview admission").click()
    expect(page.locator(".verdict h2")).to_have_text("Admit: Every objective holds")
    page.get_by_role("button", name="Apply", exact=True).click()
    page.locator("#act-dialog").get_by_role("button", name=f"Apply {QUERY} v1").click()
    expect(page.locator(".toast").first).to_contain_text("is applied")
    page.goto(f"/c/{SLUG}/queries/{QUERY}/live/")
    page.get_by_role("button", name=f"Start {QUERY}").click()
    expect(page.get_by_text("No result yet")).to_be_visible()


def result(live: dict[str, Any], seq: int, at_us: int, slow_us: float) -> bytes:
    """Result of the window that begins then, from the stream processor: two links, one of them as slow as given."""
    schema = Pipeline.parse(live["pipeline"]).output_schema
    now_us = int(time.time() * 1e6)
    rows = [
        {
            "window_start": datetime.fromtimestamp(at_us / 1e6, UTC),
            "src_ip": "10.0.0.1",
            "dst_ip": dst,
            "probes": 90,
            "rtt_avg_us": median,
            "rtt_max_us": int(median * 3),
            "rtt_min_us": int(median / 2),
            "rtt_median_us": median,
        }
        for dst, median in (("10.0.0.2", 250.0), ("10.0.0.9", slow_us))
    ]
    extra = {
        "window_us": at_us,
        "width_us": WIDTH_US,
        "revision": 0,
        "batch": seq - 1,
        "complete": True,
        "missing": [],
        "late": 0,
        "records": 180,
        "closing_epoch_us": now_us - 1_500_000,
        "emitted_us": now_us,
    }
    body = batch_bytes(pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema))
    key, plan = f"{SLUG}/{QUERY}", live["plan"]
    return encode_frame(Frame(FrameKind.RESULT, "stream", "1", seq, key, plan, extra=extra, body=body))


def test_an_agent_joins_and_a_query_goes_live(page: Page, api: Api, console: Installation, stream_token: str) -> None:
    api.post("clusters", {"slug": SLUG, "name": "Edge", "subinterval_s": 1, "horizon_s": 60})
    api.post("node-pools", {"cluster": SLUG, "name": "std", "capacity_cps": 2.5e9, "cores": 1})
    api.post("nodes", {"cluster": SLUG, "pool": "std", "name": "n1"})
    agent = enrol(page, console)
    page.goto(f"/c/{SLUG}/sources/")
    expect(page.get_by_role("link", name="edge-1")).to_be_visible()
    expect(page.locator("tbody").get_by_text("Never reported")).to_be_visible()
    report(console, agent)
    expect(page.locator("tbody").get_by_text("Steady")).to_be_visible()

    go_live(page)
    live = planned(console, stream_token)
    first_us = (int(time.time() * 1e6) // WIDTH_US - 10) * WIDTH_US
    sent = count(1)

    def compute(slow_us: float) -> None:
        """Send the next window: each follows the one before, however long the pages took."""
        seq = next(sent)
        body = result(live, seq, first_us + (seq - 1) * WIDTH_US, slow_us)
        send(console, "stream-processor/frames", body, "application/vnd.sluice.frames", stream_token)

    for _ in range(3):
        compute(300.0)
    expect(page.get_by_role("heading", name="Newest results")).to_be_visible()
    expect(page.locator("figure[data-chart=live-column] svg").first).to_be_visible()

    watch_a_link(page, compute)
    change_load_factors(page, api)
    slide_the_budget(page, api)
    choose_agents(page)
    look_at_every_page(page)


def watch_a_link(page: Page, compute: Callable[[float], None]) -> None:
    """A rule of two windows: it opens by itself on the open page, is seen, and ends when the value is back."""
    page.get_by_role("link", name="Add a rule").click()
    page.locator("main [name=name]:not([type=hidden])").fill("Slow storefront")
    page.locator("[name=column]").select_option("rtt_median_us")
    page.locator("[name=threshold]").fill("900")
    page.locator("[name=for_windows]").fill("2")
    page.locator("[name=where]").fill("dst_ip in ('10.0.0.9')")
    page.get_by_role("button", name="Save the rule").click()
    expect(page.get_by_text("Nothing breaks it.")).to_be_visible()
    for _ in range(2):
        compute(1200.0)
    expect(page.get_by_text("1 firing")).to_be_visible()
    page.goto(f"/c/{SLUG}/")
    expect(page.get_by_role("link", name=re.compile("Slow storefront: src_ip = 10.0.0.1"))).to_be_visible()
    page.goto(f"/c/{SLUG}/queries/{QUERY}/live/")
    page.get_by_role("button", name=re.compile("Acknowledge")).click()
    expect(page.get_by_text("Seen by admin")).to_be_visible()
    compute(280.0)
    expect(page.get_by_text("the value is back, 280 after 1,200 at worst")).to_be_visible()


def change_load_factors(page: Page, api: Api) -> None:
    """By keyboard alone: previewed, then applied."""
    page.goto(f"/c/{SLUG}/sources/agents/edge-1/load-factors/{QUERY}/")
    page.get_by_label("pairs, as a slider").focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_label("pairs", exact=True)).to_have_value("0.1")
    page.get_by_label("pairs", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="Predicted changes")).to_be_focused()
    page.get_by_role("button", name="Apply to edge-1").press("Enter")
    expect(page.locator(".toast").first).to_contain_text("new load factors")
    found = api.get(f"live-queries?cluster={SLUG}")["results"][0]["assignments"]
    assert found[0]["settings"]["load_factors"][-1] == 0.1


def slide_the_budget(page: Page, api: Api) -> None:
    """By keyboard: what would follow is told while it moves, Enter in the number saves it."""
    page.goto(f"/c/{SLUG}/sources/agents/edge-1/")
    expect(page.locator("#budget-what")).to_contain_text("A prediction needs its costs")
    slider, number = page.get_by_label("CPU budget in cores, as a slider"), page.get_by_label("Budget", exact=True)
    before = float(number.input_value())
    slider.focus()
    with page.expect_response(lambda answer: "budget/preview/" in answer.url):
        page.keyboard.press("ArrowLeft")
    wanted = float(number.input_value())
    assert 0.01 < wanted < before
    assert slider.get_attribute("aria-valuetext") == f"{wanted:g} cores"
    number.press("Enter")
    expect(page.locator(".toast").first).to_contain_text(f"may use {wanted:g} cores")
    assert api.get(f"agents?cluster={SLUG}")["results"][0]["budget_cores"] == wanted


def choose_agents(page: Page) -> None:
    """Rows that are chosen stay so while the list refreshes itself, and lead to a preview."""
    page.goto(f"/c/{SLUG}/sources/")
    page.get_by_label("Select edge-1").check()
    # a refresh asked for while the list is being replaced reaches nobody, so it is asked for until it comes
    with page.expect_response(lambda answer: answer.url.endswith("/sources/")):
        page.evaluate(
            "window.asking = setInterval(() => document.body.dispatchEvent(new CustomEvent('changed:*')), 500)"
        )
    page.evaluate("clearInterval(window.asking)")
    expect(page.get_by_label("Select edge-1")).to_be_checked()
    expect(page.locator(".bulk [data-count]")).to_have_text("1 selected")
    page.get_by_role("button", name="Set budget").click()
    expect(page.get_by_role("heading", name="CPU budget of 1 agent")).to_be_visible()


def look_at_every_page(page: Page) -> None:
    """No serious finding of axe, and no page that scrolls sideways on a phone."""
    from axe_playwright_python.sync_playwright import Axe

    axe, live = Axe(), f"/c/{SLUG}/queries/{QUERY}/live/"
    agent = "agents/edge-1/"
    parts = ["", agent, f"{agent}load-factors/{QUERY}/", f"{agent}method/{QUERY}/", "change/?what=budget&row=edge-1"]
    parts += ["configs/", "configs/new/", "rollout-policy/", "collected/probes/", "new/table/"]
    addresses = [f"/c/{SLUG}/sources/{part}" for part in parts]
    addresses += [live, f"{live}rules/new/", f"/c/{SLUG}/queries/-/live/?template=s2s-probe"]
    for address in addresses:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(address)
        found = axe.run(page).response["violations"]
        serious = [
            (violation["id"], violation["nodes"][0]["html"])
            for violation in found
            if violation["impact"] in {"serious", "critical"}
        ]
        assert serious == [], address
        page.set_viewport_size({"width": 390, "height": 844})
        wait_until(lambda: page.evaluate(_TOO_WIDE_PX) <= 0, what=f"{address} without scrolling sideways on a phone")
