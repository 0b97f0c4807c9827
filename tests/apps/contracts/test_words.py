"""Words of every page: a quantity has one spelling, and nothing of the program stands in a sentence."""

from __future__ import annotations

import pytest

from tests.apps.contracts.words import faults_of


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ("<p>6.4 ms</p><td>0.0064 s</td>", "one quantity in two spellings: 6.4 ms beside 0.0064 s"),
        ("<p>49.5 ms</p><td>0.05 s</td>", "one quantity in two spellings: 49.5 ms beside 0.05 s"),
        ('<p>3.8<span class="u">k/s</span></p><td>3,790 events/s</td>', "one quantity in two spellings: 3.8 k/s"),
        ("<p>It takes 66.5 min of its 60 s.</p>", "over its bound without a word: 66.5 min of its 60 s"),
        ("<p>up to 5.5 s of 4.2 s</p>", "over its bound without a word: 5.5 s of 4.2 s"),
        ("<p>At risk</p><td>at_risk</td>", "a state as programs write it: at_risk"),
        ("<p>p99</p><td>q0.99</td>", "a quantile as programs write it"),
        ("<p>objective_bound_s is missing</p>", "a word of the program"),
        ('<b title="`may_split` lists a, not may_split">a</b>', "a word of the program"),
        ("<p>Since 2026-11-21T14:32:08Z</p>", "a time as programs write it"),
        ("<p>1 nodes</p>", "one of many"),
        ("<p>12 node wait</p>", "many of one"),
        ("<td>None</td>", "no value"),
        ("<td>from nan to 3 s</td>", "no value"),
        ("<p>{{ name }}</p>", "a hole in a template"),
        ("<p>{count:counted node} wait</p>", "a hole in a template"),
        ("<p>It runs on <b></b> .</p>", "a hole in a sentence"),
        ("<p>n1 falls behind in subintervals 290 to 476</p>", "steps of the grid"),
        ("<p>1.35e-07 to 3</p>", "a number as programs write it"),
        ("<p>It waits. core 3 of n1 is full</p>", "a sentence that begins small"),
    ],
)
def test_fault_of_words_is_found(html: str, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults_of(html)), faults_of(html)


def test_sound_words_have_no_fault() -> None:
    html = """<p>Version 1 runs: 1 node, 12 nodes. 3,990 s, over its 60 s. None of 3 holds.</p><p>49.5 ms of its 5 s</p>
    <td>16:03:04 core 3 of n09</td><p>22 min ago</p><p><code>may_split</code> lists it.</p><a>clicks_by_page</a>"""
    assert faults_of(html) == []
