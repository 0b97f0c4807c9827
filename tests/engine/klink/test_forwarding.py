"""Messages between the nodes of a shared query."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.klink.slack import forwarding_messages

OPS = st.lists(st.sampled_from("ABCD"), min_size=1, max_size=7).map(
    lambda nodes: [(f"O{index}", node) for index, node in enumerate(nodes, start=1)]
)


def test_operator_that_makes_watermarks_sends_both_ways():
    ops = [("O1", "A"), ("O2", "B"), ("O3", "C")]
    assert forwarding_messages(ops, "O2") == [
        ("B", "A", ["cost:O2", "delay"]),
        ("B", "C", ["delay"]),
        ("C", "A", ["cost:O3"]),
        ("C", "B", ["cost:O3"]),
    ]


@settings(deadline=None)
@given(OPS)
def test_every_node_receives_the_delay_and_all_downstream_costs(ops):
    sent = {(receiver, what) for _, receiver, info in forwarding_messages(ops) for what in info}
    for index, (_, node) in enumerate(ops):
        if node != ops[0][1]:
            assert (node, "delay") in sent
        later = {f"cost:{name}" for name, other in ops[index + 1 :] if other != node}
        assert later <= {what for receiver, what in sent if receiver == node}


@settings(deadline=None)
@given(OPS)
def test_no_node_sends_to_itself_or_repeats_a_message(ops):
    sent = forwarding_messages(ops)
    assert all(sender != receiver for sender, receiver, _ in sent)
    assert len({(sender, receiver) for sender, receiver, _ in sent}) == len(sent)
    assert sent == sorted(sent)
