"""Stages that the planner's tests share: the paper's word count, also by windows, on nodes of four cores."""

from __future__ import annotations

from dataclasses import replace

from engine.planner.profile import NodeHardware, StageProfile

WORD = StageProfile(
    alpha=8, c_map=1.6e-5, c_red=2e-6, b_in=110, b_out=12, c_part=3e-5, c_sh=8e-6, c_hb=5e-3, c_bat=2e-4
)  # fmt: skip
WINDOWS = replace(WORD, window=30, keys=4e6, s_k=6e-6)
SESSIONS = StageProfile(c_map=1e-6, c_red=2.4e-6, b_in=24, b_out=16, c_part=3e-5, c_sh=8e-6, c_hb=5e-3, c_bat=2e-4)
NODE = NodeHardware(t_seek=5e-4)
