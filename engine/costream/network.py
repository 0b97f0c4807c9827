"""Staged message passing (algorithm 1) in NumPy: encoders, three stages of updates, a readout by sum, heads.

An MLP is a list of dense layers, each with ReLU behind it but for the last layer of a head. Every update gets
``[sum of messages, own state]``:

1. ``op_to_host``: each used host the sum of its operators' encoded states, and its own;
2. ``host_to_op``: each operator its host's new state, and its own encoded one;
3. ``flow``: level by level, each operator but the sources the sum of the new states of those it reads, and its own of
   stage 2.

The readout is the sum of all operators' states of stage 3 (sources: of stage 2) and all used hosts' of stage 1.

Parameters (H the hidden width, read from the shapes; a layer is ``y = x W^T + b`` as in PyTorch):

=================================  =========================================  =================================
name                               weight of layer 0, layer 1                 what
=================================  =========================================  =================================
``encoder.KIND.L.weight|bias``     (H, `input_widths(form)[KIND]`), (H, H)    KIND: source, filter, join, agg,
                                                                              sink, host
``update.EDGE.L.weight|bias``      (H, 2H), (H, H)                            EDGE: op_to_host, host_to_op, flow
``head.METRIC.L.weight|bias``      (H, H), (3, H) or (1, H)                   METRIC: T, Lp, Le with centre,
                                                                              10 % and 90 % quantile; RO, S with
                                                                              one logit
=================================  =========================================  =================================

Regression outputs are residuals of the anchor: ln of tuples/s and of seconds once it is added.
"""

from __future__ import annotations

from engine.costream.batch import input_widths

__all__ = ["EDGE_KINDS", "METRICS", "OUTPUTS", "parameter_shapes"]

EDGE_KINDS = ("op_to_host", "host_to_op", "flow")

METRICS = ("T", "Lp", "Le", "RO", "S")

# Columns of the network's output, float32 of shape (graphs, 11).
OUTPUTS = ("T", "Lp", "Le", "RO", "S", "T_low", "T_high", "Lp_low", "Lp_high", "Le_low", "Le_high")


def parameter_shapes(form: str, hidden: int = 64) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a network's parameters, in the order of the table above.

    Examples
    --------
    >>> shapes = parameter_shapes("plain", hidden=8)
    >>> shapes["encoder.source.0.weight"], shapes["update.flow.0.weight"], shapes["head.T.1.weight"]
    ((8, 5), (8, 16), (3, 8))
    """
    layers: dict[str, tuple[int, int]] = {}
    for kind, width in input_widths(form).items():
        layers |= {f"encoder.{kind}.0": (hidden, width), f"encoder.{kind}.1": (hidden, hidden)}
    for edge in EDGE_KINDS:
        layers |= {f"update.{edge}.0": (hidden, 2 * hidden), f"update.{edge}.1": (hidden, hidden)}
    for metric in METRICS:
        outputs = 1 if metric in ("RO", "S") else 3
        layers |= {f"head.{metric}.0": (hidden, hidden), f"head.{metric}.1": (outputs, hidden)}
    return {
        name: shape
        for layer, (rows, columns) in layers.items()
        for name, shape in ((f"{layer}.weight", (rows, columns)), (f"{layer}.bias", (rows,)))
    }
