"""One number, one name: the demo's figures are the same on every page, in the report and in REST."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services import token_create
from apps.admission.choices import Verdict
from apps.admission.models import AdmissionRequest
from apps.fleet.models import Cluster
from apps.queries.choices import ObjectiveState
from apps.reports.lifecycle import report_facts
from apps.reports.models import Report
from apps.ui.numbers import percent, ratio, seconds, seconds_range
from engine.words import statistic_words
from tests.apps.pages.html import body

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.usefixtures("demo")]

HERE = "/c/eu-1/"
_TAGS = re.compile(r"<(script|style|svg|template)\b.*?</\1>|<[^>]+>", re.DOTALL)


def plain(html: str) -> str:
    """Text of a piece of a page, without blanks and unbroken spaces between its parts."""
    return re.sub(r"\s+", "", unescape(_TAGS.sub("", html)))


def joined(words: Any) -> str:
    """A formatted number as `plain` writes it."""
    return re.sub(r"\s+", "", str(words))


def rows_of(html: str) -> dict[str, list[str]]:
    """Cells of every table row of a page by the name in its head."""
    rows: dict[str, list[str]] = {}
    for row in re.findall(r"<tr[ >].*?</tr>", html, re.DOTALL):
        cells = re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL)
        heads = [cell for cell in cells if 'scope="row"' in cell]
        if heads:
            link = re.search(r'<a class="name".*?</a>', heads[0], re.DOTALL)
            rows.setdefault(plain(link[0] if link else heads[0]), [plain(cell) for cell in cells])
    return rows


def strips_of(html: str) -> dict[str, tuple[str, str]]:
    """(highest excess, mean load) of every line of a page's heat strips."""
    line = r'<span class="name">(?P<plain>.*?)</span>|<a class="name" href="[^"]*">(?P<link>.*?)</a>'
    parts = re.split(line, html.split('<div class="strip"')[1].split("</section>")[0])
    strips = {}
    for at in range(1, len(parts), 3):
        name = parts[at] or parts[at + 1]
        highest, load = re.findall(r'<div class="r[^"]*">(.*?)</div>', parts[at + 2])[:2]
        strips[plain(name)] = (plain(highest), plain(load))
    return strips


@pytest.fixture
def pages() -> Client:
    client = Client()
    client.force_login(User.objects.get(username="demo"))
    return client


@pytest.fixture
def rest() -> APIClient:
    user = User.objects.get(username="demo")
    _, secret = token_create(user=user, name="walk", scopes=sorted(user.scopes))
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


@pytest.fixture
def estimate(rest: APIClient) -> dict[str, Any]:
    """The newest estimate as REST has it: the figures that pages are compared with."""
    newest = rest.get("/api/v1/estimates?cluster=eu-1").json()["results"][0]
    return dict(rest.get(f"/api/v1/estimates/{newest['id']}").json())


@pytest.fixture
def nodes(estimate: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Mean load, peak load and excess of every node, each that of the core which has most of it."""
    cores: dict[str, list[dict[str, Any]]] = {}
    for server in estimate["servers"]:
        if server["node"]:
            cores.setdefault(server["node"], []).append(server)
    figures = ("mean_load", "peak_load", "excess_s")
    return {name: tuple(max(row[key] for row in rows) for key in figures) for name, rows in cores.items()}


def newest_report() -> Report:
    return Report.objects.filter(definition__cluster__slug="eu-1").latest("created_at")


def report_figures() -> dict[str, Any]:
    facts = report_facts(newest_report())
    return facts.to_dict() if facts is not None else {}


def get(pages: Client, path: str) -> str:
    response = pages.get(f"{HERE}{path}")
    assert response.status_code == 200, path
    return body(response)


def test_nodes_have_the_load_of_their_busiest_core_on_every_page(pages: Client, nodes: dict[str, Any]) -> None:
    assert len(nodes) == Cluster.objects.get(slug="eu-1").nodes.count() == 12
    overview, fleet = strips_of(get(pages, "")), rows_of(get(pages, "fleet/"))
    for name, (mean, peak, excess_s) in nodes.items():
        texts = ratio(mean), ratio(peak), joined(seconds(excess_s))
        assert overview[name] == (texts[2], texts[0]), name
        assert [text in fleet[name] for text in texts] == [True] * 3, (name, fleet[name], texts)
        page = plain(get(pages, f"fleet/nodes/{name}/"))
        assert f"Load,busiestcore{texts[0]}ofcapacity{texts[1]}atitspeak" in page, name
        assert f"Excessatitspeak{texts[2]}" in page, name
    busiest = max(nodes, key=lambda name: nodes[name][0])
    assert f"Highestload{ratio(nodes[busiest][0])}ofcapacity{busiest}" in plain(get(pages, ""))


def test_cores_have_one_load_on_the_pages_of_node_query_and_placement(pages: Client, estimate: dict[str, Any]) -> None:
    placement = get(pages, "placement/")
    lines = re.findall(
        r'<span class="pl-n">((?:(?!pl-n).)*?)<div class="blocks.*?<span class="r">(.*?)</span>', placement
    )
    shown = {plain(name).removesuffix("bottleneck"): load for name, load in lines}
    cores = {row["server"]: row for row in estimate["servers"] if row["node"]}
    assert shown == {server: ratio(row["mean_load"]) for server, row in cores.items()}
    for row in estimate["queries"]:
        strips = strips_of(get(pages, f"queries/{row['query']}/placement/"))
        for words, (highest, load) in strips.items():
            found = re.fullmatch(r"Core(\d+)of(.+)", words)
            assert found, words
            core = cores[f"{found[2]}#{found[1]}"]
            assert (highest, load) == (joined(seconds(core["excess_s"])), ratio(core["mean_load"])), words
    for node in sorted({row["node"] for row in cores.values()}):
        strips = strips_of(get(pages, f"fleet/nodes/{node}/"))
        assert {load for _, load in strips.values()} == {
            ratio(row["mean_load"]) for row in cores.values() if row["node"] == node
        }


def test_bottleneck_is_named_by_its_core_with_the_peak_of_that_core(pages: Client, estimate: dict[str, Any]) -> None:
    peaks = {row["server"]: row["peak_load"] for row in estimate["servers"]}
    table = rows_of(get(pages, "queries/"))
    for row in estimate["queries"]:
        bottleneck = row["result"]["bottleneck"]
        assert bottleneck["load_peak"] == pytest.approx(peaks[bottleneck["server"]])
        assert f"{bottleneck['server']}{ratio(bottleneck['load_peak'])}" in table[row["query"]], row["query"]
        node, _, core = bottleneck["server"].partition("#")
        page = plain(get(pages, f"queries/{row['query']}/"))
        assert re.search(f"(Bottleneck|Busiestcore){node}core{core}", page), row["query"]
        assert f"peakload{ratio(bottleneck['load_peak'])}" in page


def test_queries_have_one_estimate_interval_and_headroom(pages: Client, estimate: dict[str, Any]) -> None:
    overview, listed = rows_of(get(pages, "")), rows_of(get(pages, "queries/"))
    reported = {row["query"]: row for row in report_figures()["objectives"]["rows"]}
    for row in estimate["queries"]:
        name, bound = row["query"], row["bound_s"]
        value = joined(seconds(row["estimate_s"], apart_from=bound))
        interval = joined(seconds_range(row["low_s"], row["high_s"], apart_from=bound))
        room = joined(percent(row["headroom_share"]))
        assert {value, interval, room} <= {*overview[name]}, (overview[name], value, interval)
        assert {f"{value}{interval}", room} <= {*listed[name]}, (listed[name], value, interval)
        page = plain(get(pages, f"queries/{name}/"))
        assert f"{interval},90%interval" in page, name
        assert bound is None or f"{room}oftheobjective" in page
        assert bound is None or joined(statistic_words(row["statistic"], begins=True)) in page
        figures = ("estimate_s", "low_s", "high_s", "headroom_share", "state")
        assert [reported[name][key] for key in figures] == [row[key] for key in figures], name


def test_states_are_counted_alike(pages: Client, estimate: dict[str, Any]) -> None:
    states = [row["state"] for row in estimate["queries"]]
    counts = {state: states.count(state) for state in ObjectiveState.values}
    judged = len(states) - counts[ObjectiveState.NONE]
    overview, queries = plain(get(pages, "")), plain(get(pages, "queries/"))
    assert f"{counts['holds']}of{judged}objectiveshold." in overview
    labels = {"Expectedlate": "breached", "Atrisk": "at_risk", "Holdsbyestimate": "holds", "Noobjective": "none"}
    for label, state in labels.items():
        assert f"{label}{counts[state]}" in overview
        assert f"{label}{counts[state]}" in queries
    reported = [row["state"] for row in report_figures()["objectives"]["rows"]]
    assert sorted(reported) == sorted(states)


def test_previews_start_from_the_figures_of_the_estimate(
    pages: Client, estimate: dict[str, Any], nodes: dict[str, Any]
) -> None:
    """All requests but the first, which was applied, were decided on the cluster that was estimated last."""
    estimates = {row["query"]: row for row in estimate["queries"]}
    requests = AdmissionRequest.objects.filter(cluster__slug="eu-1").exclude(version__query__name="delivery-eta")
    assert requests.count() == 5
    for request in requests:
        page = rows_of(get(pages, f"admission/{request.pk}/"))
        for node in request.result["nodes"]:
            assert node["before_peak"] is None or node["before_peak"] == pytest.approx(nodes[node["node"]][1])
        for effect in request.result["effects"]:
            row = estimates.get(effect["query"])
            if row is None or effect["before_s"] is None:
                continue
            assert effect["before_s"] == pytest.approx(row["estimate_s"])
            shown = page.get(effect["query"])
            if request.verdict == Verdict.QUEUE:
                continue  # its page shows what holds from its start on, before and after alike
            assert shown is None or joined(seconds(row["estimate_s"], apart_from=row["bound_s"])) in shown


def test_what_if_of_now_has_the_figures_of_the_estimate(
    pages: Client, rest: APIClient, estimate: dict[str, Any], nodes: dict[str, Any]
) -> None:
    rows = rest.get("/api/v1/what-ifs?cluster=eu-1").json()["results"]
    compared = next(row for row in rows if row["find"] == "compare")
    answer = rest.get(f"/api/v1/what-ifs/{compared['id']}").json()["result"]
    now = next(scenario for scenario in answer["scenarios"] if scenario["name"] == "Now")
    assert now["node_count"] == len(nodes)
    found = {row["node"]: (row["load_mean"], row["load_peak"], row["mace_s"]) for row in now["nodes"]}
    assert found == {name: pytest.approx(figures) for name, figures in nodes.items()}
    page = rows_of(get(pages, f"provisioning/what-ifs/{compared['id']}/"))
    for row in estimate["queries"]:
        query = now["queries"][row["query"]]
        assert [query[key] for key in ("estimate_s", "low_s", "high_s")] == pytest.approx(
            [row[key] for key in ("estimate_s", "low_s", "high_s")]
        )
        shown = joined(seconds(row["estimate_s"], apart_from=row["bound_s"]))
        assert any(shown in cell for cell in page[row["query"]]), (row["query"], page[row["query"]])


def test_proposed_placement_starts_from_the_figures_of_the_estimate(rest: APIClient, estimate: dict[str, Any]) -> None:
    run = rest.get("/api/v1/placements?cluster=eu-1").json()["results"][0]
    cores = {row["server"]: row for row in estimate["servers"]}
    rows = rest.get(f"/api/v1/placements/{run['id']}").json()["proposal"]["nodes"]
    assert len(rows) == 32
    for row in rows:
        core = cores[row["server"]]
        assert (row["before_peak"], row["before_mace_s"]) == pytest.approx((core["peak_load"], core["excess_s"]))


def test_report_has_the_figures_of_the_estimate(pages: Client, nodes: dict[str, Any]) -> None:
    figures = ("mean_load", "peak_load", "excess_s")
    assert {row["name"]: tuple(row[key] for key in figures) for row in report_figures()["fleet"]["nodes"]} == nodes
    page = rows_of(get(pages, f"reports/{newest_report().pk}/"))
    for name, (mean, peak, _) in nodes.items():
        assert [ratio(mean) in page[name], ratio(peak) in page[name]] == [True, True], page[name]


def test_numbers_of_nodes_say_what_they_rest_on(pages: Client, rest: APIClient) -> None:
    """Bench and forecast answer other questions: where their numbers stand, what differs stands beside them."""
    swept = rest.post("/api/v1/what-ifs/sweep", {"cluster": "eu-1"}, format="json")
    assert swept.status_code == 200, swept.content
    bench = swept.json()
    forecast = rest.get("/api/v1/forecasts?cluster=eu-1").json()["results"][0]
    assert bench["now"] == forecast["result"]["nodes"] == 12
    assert plain(bench["basis"]) in plain(get(pages, "provisioning/"))
    assert plain(forecast["pools_basis"]) in plain(get(pages, "provisioning/forecast/"))
    for words in ("with any one node lost", "all nodes up", "mean costs", "random costs"):
        assert words in bench["basis"]
