"""Weights of an ensemble on disk: NAME.npz with the parameters, NAME.json with the model card.

The archive holds one float32 (or float16) array per parameter of each member, named ``MEMBER.PARAMETER`` as in
``0.encoder.source.0.weight`` (names of `engine.costream.network`); nothing in it is pickled. The card says form, hidden
width, what the members were trained on, the ranges of their features, the scale of the intervals, errors, and the
SHA-256 of the archive, so that another file is refused.
"""

from __future__ import annotations
