"""Compiled parts of the planner: the latency of a stage in both forms, and the search over its settings.

All of it stands in one module because numba's cache does not notice a change of a function that another module compiles
in. Symbols are the paper's (Li, Diao, Shenoy, VLDB 2015); docs/models/planner.md has every formula.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from engine.arrays import FloatArray, IntArray
from engine.compiler import compiled_uncounted

__all__ = [
    "ANSWER_SIZE",
    "REASONS",
    "UNSTABLE",
    "SearchSpace",
    "Slot",
    "StageModel",
    "bridge_wait",
    "judge",
    "largest_rate",
    "least_latency",
    "queue_wait",
    "slow_down",
]

#: Limits in the order in which they are checked; the first that is exceeded is the reason (0: none is).
REASONS = (
    "",
    "cpu of a node",
    "mapper thread",
    "reducer thread",
    "network",
    "disk",
    "map output buffer",
    "utilisation ceiling",
)
#: Metrics from here on stand for settings that are not stable: the lower, the nearer to stability.
UNSTABLE = 1e15
_FAR, _FAR_BUFFER = 1e20, 1e18
_TINY_VARIANCE = 1e-12  # of the number of partitions in a poll: below, the ratio of the intervals is whole
_CPU_ROUNDS = 4  # of the fixed point of the slow-downs
_FINEST = 1.003  # last factor of the compass search
_REACH = 4  # power of the factor that a descent can still make good
_SCORE = 2.0  # times the least metric: pairs of threads beyond it are not tried from every start
_GAIN = 1e-5  # relative: steps of the rate


class Slot(IntEnum):
    """Places of the results in the array that `judge` fills."""

    REASON = 0
    UTIL = 1  # cpu, map, red, net, disk
    MEAN = 6
    VAR = 7
    PHASE_MEAN = 8  # 12
    PHASE_VAR = 20  # 12
    PART_MEAN = 32  # 6: of a window's last tuple and finalize
    PART_VAR = 38  # 6


ANSWER_SIZE = 44
_REASON, _UTIL, _MEAN, _VAR = int(Slot.REASON), int(Slot.UTIL), int(Slot.MEAN), int(Slot.VAR)
_PHASE_MEAN, _PHASE_VAR = int(Slot.PHASE_MEAN), int(Slot.PHASE_VAR)
_PART_MEAN, _PART_VAR = int(Slot.PART_MEAN), int(Slot.PART_VAR)


class StageModel(NamedTuple):
    """Profile, hardware and options as numbers; `width` is the quantile's distance from the mean in deviations."""

    alpha: float
    c_map: float
    c_red: float
    b_in: float
    b_out: float
    cv2_map: float
    cv2_red: float
    cv2_net: float
    cv2_disk: float
    c_part: float
    c_sh: float
    c_hb: float
    c_bat: float
    period_s: float
    keys: float
    s_k: float
    cores: int
    v_net: float
    v_disk: float
    t_seek: float
    map_buf: float
    rho_max: float
    is_improved: bool
    mean: int  # 0 klb, 1 allen_cunneen, 2 kingman, 3 marchal
    var: int  # 0 qna, 1 heavy_traffic, 2 third_moment
    kind: int  # 0 mean, 1 normal, 2 cantelli
    width: float


@compiled_uncounted
def queue_wait(ta: float, ca2: float, ts: float, cs2: float, ds3: float, mean: int, var: int) -> tuple[float, float]:
    """Mean and variance of the wait before service in a G/G/1 queue.

    `ta`, `ts` are mean inter-arrival and service time, `ca2`, `cs2` their squared coefficients of variation, `ds3` is
    E[S^3] / E[S]^3 (not above 0: that of a gamma law). Infinite where the queue is not stable.
    """
    if ts <= 0.0:
        return 0.0, 0.0
    rho, c = ts / ta, ca2 + cs2
    if rho >= 1.0:
        return math.inf, math.inf
    if c <= 0.0:
        return 0.0, 0.0
    allen_cunneen = rho / (1.0 - rho) * ts * c / 2.0
    kingman = (ca2 * ta * ta + cs2 * ts * ts) / (2.0 * ta * (1.0 - rho))
    if mean == 0:
        if ca2 <= 1.0:
            w = allen_cunneen * math.exp(-2.0 * (1.0 - rho) / (3.0 * rho) * (1.0 - ca2) * (1.0 - ca2) / c)
        else:
            w = allen_cunneen * math.exp(-(1.0 - rho) * (ca2 - 1.0) / (ca2 + 4.0 * cs2))
    elif mean == 1:
        w = allen_cunneen
    elif mean == 2:
        w = kingman
    else:
        w = kingman * (1.0 + cs2) / (1.0 / (rho * rho) + cs2)
    if w <= 0.0:
        return 0.0, 0.0
    if var == 1:
        return w, w * w
    if ds3 <= 0.0:
        ds3 = (1.0 + cs2) * (1.0 + 2.0 * cs2)
    if ca2 <= 1.0:
        h = (1.0 + ca2 + rho * cs2) / (1.0 + rho * (cs2 - 1.0) + rho * rho * (4.0 * ca2 + cs2))
    else:
        h = 4.0 * rho / (ca2 + rho * rho * (4.0 * ca2 + cs2))
    sigma = min(max(rho + (ca2 - 1.0) * rho * (1.0 - rho) * h, 1e-9), 1.0)
    if var == 0:
        d2 = 2.0 * rho - 1.0 + 4.0 * (1.0 - rho) * ds3 / (3.0 * (cs2 + 1.0) * (cs2 + 1.0))
        return w, max(w * w * (d2 + 1.0 - sigma) / sigma, 0.0)
    # Lindley's identity with the difference of service and inter-arrival time; idle times are of a gamma law.
    e1 = ts - ta
    s2, a2 = ts * ts * (1.0 + cs2), ta * ta * (1.0 + ca2)
    s3, a3 = ts * ts * ts * ds3, ta * ta * ta * (1.0 + ca2) * (1.0 + 2.0 * ca2)
    e2 = s2 - 2.0 * ts * ta + a2
    e3 = s3 - 3.0 * s2 * ta + 3.0 * ts * a2 - a3
    idle = max(1.0 - sigma, 1e-9)
    i1 = -e1 / idle
    i2 = max((e2 + 2.0 * e1 * w) / idle, i1 * i1)
    i3 = i2 * (2.0 * i2 / i1 - i1)
    v = (idle * i3 + 3.0 * w * e2 + e3) / (-3.0 * e1) - w * w
    return w, v if v > 0.0 else w * w


@compiled_uncounted
def bridge_wait(sources: float, rho: float) -> tuple[float, float]:
    """First and second moment of the wait, in service times, behind periodic sources with random phases."""
    b = max(1.0 - rho, 0.0)
    y = b * math.sqrt(sources / 2.0)
    if y < 5.0:
        scaled = math.exp(y * y) * math.erfc(y)
    else:
        scaled = (1.0 - 1.0 / (2.0 * y * y)) / (y * math.sqrt(math.pi))
    m = math.sqrt(math.pi * sources / 8.0) * scaled
    return m, max((sources / 2.0) * (1.0 - 2.0 * b * m), m * m)


@compiled_uncounted
def slow_down(i: int, u: float, j: int, w: float, cores: int) -> float:
    """E[max(1, (1 + A + B) / cores)] with A ~ Binomial(i, u) and B ~ Binomial(j, w) other threads that are busy."""
    if i + j + 1 <= cores:
        return 1.0
    u, w = min(max(u, 0.0), 1.0), min(max(w, 0.0), 1.0)
    most = min(i, cores - 2)
    ways_a, ways_b = 1.0, 1.0
    for a in range(most):
        ways_a *= (i - a) / (a + 1.0)
    # Cores that idle beside `a` busy threads of the first kind: E[(cores - 1 - a - B)+] by the sum of B's distribution.
    below, idle, spare = 0.0, 0.0, 0.0
    for b in range(cores - 1):
        if b <= j:
            below += ways_b * w**b * (1.0 - w) ** (j - b)
            ways_b *= (j - b) / (b + 1.0)
        idle += below
        a = cores - 2 - b
        if a <= most:
            spare += ways_a * u**a * (1.0 - u) ** (i - a) * idle
            ways_a *= a / (i - a + 1.0)
    return (1.0 + i * u + j * w + spare) / cores


@compiled_uncounted
def _group_wait(
    model: StageModel, b_ch: float, mappers: float, g: float, nv: float, ahead: float, tau: float, q: float
) -> tuple[float, float]:
    """Mean and variance of the wait of a whole poll group, whose partitions take `tau` each (improved form)."""
    w1, v1 = queue_wait(b_ch, 0.0, g * tau, (nv + g * q) / (g * g), -1.0, model.mean, model.var)
    if nv <= _TINY_VARIANCE:
        return w1, v1
    w0, v0 = queue_wait(b_ch, 0.0, g * tau, q / g, -1.0, model.mean, model.var)
    m, m2 = bridge_wait(max(mappers - 1.0, 1.0), g * tau / b_ch)
    w2 = w0 + (math.sqrt(m * m + ahead * ahead) - ahead) * tau
    if w2 < w1:
        return w2, v0 + max(m2 - m * m, 0.0) * tau * tau
    return w1, v1


@compiled_uncounted
def judge(
    model: StageModel,
    rate: float,
    nodes: int,
    mappers: int,
    reducers: int,
    b_in: float,
    b_sh: float,
    b_ch: float,
    a: float,
    a_sd: float,
    answer: FloatArray,
) -> float:
    """The metric (s) of a stage under given settings, or more than `UNSTABLE`; the rest is written to `answer`.

    `a`, `a_sd` are mean and deviation of the largest of nodes * mappers normal draws; `answer` has shape (44,).
    """
    big_n, big_q = float(nodes * mappers), float(nodes * reducers)
    windowed = model.period_s > 0.0
    m1 = rate / nodes * b_in
    m_sh = rate * model.alpha * b_sh / big_n
    m_p = m_sh / big_q
    c_m = rate / big_n * model.c_map + model.c_sh * big_q / b_sh + model.c_bat / (mappers * b_in)
    c_r = rate * model.alpha / big_q * model.c_red + model.c_part * big_n / b_sh + model.c_hb / b_ch
    c_f = model.keys / big_q * model.s_k / model.period_s if windowed else 0.0
    c_rf = c_r + c_f
    demand = mappers * c_m + reducers * c_rf
    nu_in = rate * model.b_in / nodes
    nu_r = rate * model.alpha * model.b_out / big_q
    nu = nu_in + reducers * nu_r
    delta = (m_sh * model.b_out + model.t_seek * model.v_disk) / b_sh
    p = b_sh / big_n
    g = b_ch / p
    cores, v_net, v_disk = model.cores, model.v_net, model.v_disk

    cpu, net, disk = demand / cores, nu / v_net, mappers * delta / v_disk
    answer[_UTIL], answer[_UTIL + 1], answer[_UTIL + 2] = cpu, c_m, c_rf
    answer[_UTIL + 3], answer[_UTIL + 4] = net, disk
    reason = 0
    if demand >= cores:
        reason = 1
    elif c_m >= 1.0:
        reason = 2
    elif c_rf >= 1.0:
        reason = 3
    elif nu >= v_net:
        reason = 4
    elif mappers * delta >= v_disk:
        reason = 5
    elif model.map_buf > 0.0 and m_sh * model.b_out * (1.0 + b_ch / b_sh) > model.map_buf:
        reason = 6
    answer[_REASON] = reason
    if reason == 6:
        return _FAR_BUFFER * (1.0 + b_sh + b_ch)
    if reason > 0:
        return _FAR * (cpu + c_m + c_rf + net + disk)

    cap_m, cap_r = 1.0 / min(cores - (demand - c_m), 1.0), 1.0 / min(cores - (demand - c_rf), 1.0)
    cap_in, cap_sh = 1.0 / (1.0 - (nu - nu_in) / v_net), 1.0 / (1.0 - (nu - nu_r) / v_net)
    cap_d = 1.0 / (1.0 - (mappers - 1) * delta / v_disk)
    if model.is_improved:
        s_m = s_r = 1.0
        if mappers + reducers > cores:
            for _ in range(_CPU_ROUNDS):
                u, w = c_m * s_m, c_rf * s_r
                s_m = min(slow_down(mappers - 1, u, reducers, w, cores), cap_m)
                s_r = min(slow_down(mappers, u, reducers - 1, w, cores), cap_r)
        u_in = min(max(nu_in / (v_net - (nu - nu_in)), 0.0), 1.0)
        u_r = min(max(nu_r / (v_net - (nu - nu_r)), 0.0), 1.0)
        u_d = min(max(delta / (v_disk - (mappers - 1) * delta), 0.0), 1.0)
        f_in = min(1.0 + reducers * u_r, cap_in)
        f_sh = min(1.0 + u_in + (reducers - 1) * u_r, cap_sh)
        f_d = min(1.0 + (mappers - 1) * u_d, cap_d)
    else:
        s_m, s_r, f_in, f_sh, f_d = cap_m, cap_r, cap_in, cap_sh, cap_d
    if c_m * s_m >= 1.0:
        reason = 2
    elif c_rf * s_r >= 1.0:
        reason = 3
    elif max(cpu, net, disk, c_m * s_m, c_rf * s_r) > model.rho_max:
        reason = 7
    answer[_REASON] = reason
    if reason > 0:
        return _FAR * (cpu + c_m * s_m + c_rf * s_r + net + disk)
    answer[_UTIL + 1], answer[_UTIL + 2] = c_m * s_m, c_rf * s_r

    l_m = c_m * mappers * b_in * s_m
    l_r = c_r * p * s_r
    t_in = m1 * model.b_in / v_net * f_in
    t_sh = m_p * model.b_out / v_net * f_sh
    t_d = (m_sh * model.b_out / v_disk + model.t_seek) * f_d
    ks, kp, k1 = 1.0 / max(m_sh, 1.0), 1.0 / max(m_p, 1.0), 1.0 / max(m1, 1.0)
    q_in, q_map, q_disk = model.cv2_net + k1, model.cv2_map + k1, model.cv2_disk + ks
    q_fetch, q_red = model.cv2_net + kp, model.cv2_red + kp

    w2, v2 = queue_wait(b_in, 0.0, t_in, q_in, -1.0, model.mean, model.var)
    w4, v4 = queue_wait(mappers * b_in, 0.0, l_m, q_map, -1.0, model.mean, model.var)
    w7, v7 = queue_wait(b_sh, 0.0, t_d, q_disk, -1.0, model.mean, model.var)
    w11 = 0.0
    if model.is_improved:
        r = b_ch / b_sh
        f = r - math.floor(r)
        nv = big_n * f * (1.0 - f)
        ahead = max((g + nv / g - 1.0) / 2.0, 0.0)
        va = max(g * g - 1.0, 0.0) / 12.0 + nv / (4.0 * max(g, 1.0))
        wn, vn = _group_wait(model, b_ch, big_n, g, nv, ahead, t_sh, q_fetch)
        w11, v11 = _group_wait(model, b_ch, big_n, g, nv, ahead, l_r, q_red)
        dx = max(l_r - t_sh, 0.0)
        e9, v9 = b_ch / 2.0 + ahead * t_sh + wn, b_ch * b_ch / 12.0 + va * t_sh * t_sh + vn
        e11, v11 = ahead * dx + w11, va * dx * dx + v11
    else:
        ca2_net = ca2_red = 1.0
        if g > 1.0:
            d = min(t_sh, p)
            rest = b_ch - (g - 1.0) * d
            ca2_net = g - 1.0
            ca2_red = max(((g - 1.0) * d * d + rest * rest) / (g * p * p) - 1.0, 0.0)
        e9, v9 = queue_wait(p, ca2_net, t_sh, q_fetch, -1.0, model.mean, model.var)
        e9, v9 = e9 + b_ch / 2.0, v9 + b_ch * b_ch / 12.0
        e11, v11 = queue_wait(p, ca2_red, l_r, q_red, -1.0, model.mean, model.var)

    e, v = _PHASE_MEAN, _PHASE_VAR
    answer[e], answer[v] = b_in / 2.0, b_in * b_in / 12.0
    answer[e + 1], answer[v + 1] = w2, v2
    answer[e + 2], answer[v + 2] = t_in, q_in * t_in * t_in
    answer[e + 3], answer[v + 3] = w4, v4
    answer[e + 4], answer[v + 4] = l_m / 2.0, l_m * l_m * (q_map / 3.0 + 1.0 / 12.0)
    answer[e + 5], answer[v + 5] = b_sh / 2.0, b_sh * b_sh / 12.0
    answer[e + 6], answer[v + 6] = w7, v7
    answer[e + 7], answer[v + 7] = t_d, q_disk * t_d * t_d
    answer[e + 8], answer[v + 8] = e9, v9
    answer[e + 9], answer[v + 9] = t_sh, q_fetch * t_sh * t_sh
    answer[e + 10], answer[v + 10] = e11, v11
    answer[e + 11], answer[v + 11] = l_r / 2.0, l_r * l_r * (q_red / 3.0 + 1.0 / 12.0)
    total, spread = 0.0, 0.0
    for phase in range(12):
        total += answer[e + phase]
        spread += answer[v + phase]

    third, fourth = 0.0, 0.0
    if not windowed:
        mu, var = total, spread
        group = g * max(l_r, t_sh)
        if model.is_improved:
            var = max(spread - 2.0 * (b_in * l_m + b_sh * l_r) / 12.0, 0.0)
            third = 2.0 * w11**3
            fourth = -(b_in**4 + b_sh**4 + b_ch**4 + group**4) / 120.0
    else:
        mu, var, fourth = _window(
            model, big_n, mappers, reducers, b_in, b_sh, b_ch, g, l_m, l_r, t_sh, s_r, total, spread, a, a_sd, answer
        )
    answer[_MEAN], answer[_VAR] = mu, var
    metric = mu
    if model.kind == 2 or (model.kind == 1 and not model.is_improved):
        metric = mu + model.width * math.sqrt(var)
    elif model.kind == 1 and var > 0.0:
        sd, z = math.sqrt(var), model.width
        g1, g2 = min(max(third / sd**3, -1.0), 1.0), min(max(fourth / sd**4, -1.2), 3.0)
        z += (z * z - 1.0) * g1 / 6.0 + (z * z * z - 3.0 * z) * g2 / 24.0 - (2.0 * z * z * z - 5.0 * z) * g1 * g1 / 36.0
        metric = mu + z * sd
    if metric < UNSTABLE:
        return metric
    return _FAR * (cpu + c_m * s_m + c_rf * s_r + net + disk)


@compiled_uncounted
def _window(
    model: StageModel,
    big_n: float,
    mappers: int,
    reducers: int,
    b_in: float,
    b_sh: float,
    b_ch: float,
    g: float,
    l_m: float,
    l_r: float,
    t_sh: float,
    s_r: float,
    total: float,
    spread: float,
    a: float,
    a_sd: float,
    answer: FloatArray,
) -> tuple[float, float, float]:
    """Mean, variance and fourth cumulant of a keyed window's latency: its last tuple, then its turn in finalize."""
    k = max(model.keys * mappers / (big_n * reducers), 1.0)
    e, v, parts, squares = _PHASE_MEAN, _PHASE_VAR, _PART_MEAN, _PART_VAR
    if not model.is_improved:
        finalize = k * model.s_k * s_r
        answer[parts], answer[squares] = total + a * math.sqrt(spread), a_sd * a_sd * spread
        answer[parts + 1] = (1.0 + 1.0 / k) * finalize / 2.0
        answer[squares + 1] = (1.0 - 1.0 / (k * k)) * finalize * finalize / 12.0
        return answer[parts] + answer[parts + 1], answer[squares] + answer[squares + 1], 0.0
    first = b_in / 2.0 + answer[e + 1] + answer[e + 2] + answer[e + 3] + l_m + answer[e + 6] + answer[e + 7]
    s2 = b_in * b_in / 12.0 + answer[v + 1] + answer[v + 2] + answer[v + 3] + answer[v + 6] + answer[v + 7]
    if b_sh * b_sh / 12.0 < 3.0 * s2:
        mean_x = first + b_sh / 2.0 + a * math.sqrt(s2 + b_sh * b_sh / 12.0)
        var_x = a_sd * a_sd * (s2 + b_sh * b_sh / 12.0)
    else:
        mean_x = first + b_sh * big_n / (big_n + 1.0)
        var_x = s2 + b_sh * b_sh * big_n / ((big_n + 1.0) * (big_n + 1.0) * (big_n + 2.0))
    group = g * max(l_r, t_sh)
    last = max(group, l_r, t_sh)
    finalize = k * model.s_k * slow_down(mappers, answer[_UTIL + 1], reducers - 1, 1.0, model.cores)
    for part in range(6):
        answer[squares + part] = 0.0
    answer[parts], answer[squares] = mean_x, var_x
    answer[parts + 1], answer[squares + 1] = b_ch / 2.0, b_ch * b_ch / 12.0
    answer[parts + 2], answer[squares + 2] = last * (1.0 + min(1.0, b_ch / b_sh)) / 2.0, group * group / 12.0
    answer[parts + 3], answer[parts + 4] = t_sh, l_r
    answer[parts + 5] = (1.0 + 1.0 / k) * finalize / 2.0
    answer[squares + 5] = (1.0 - 1.0 / (k * k)) * finalize * finalize / 12.0
    mu, var = 0.0, 0.0
    for part in range(6):
        mu += answer[parts + part]
        var += answer[squares + part]
    return mu, var, -(b_ch**4) / 120.0 - finalize**4 / 120.0


class SearchSpace(NamedTuple):
    """Settings that are tried: threads per node, ascending, and the intervals (B_in, B_sh, B_ch) in seconds."""

    mappers: IntArray
    reducers: IntArray
    lowest: FloatArray  # (3,)
    highest: FloatArray  # (3,)
    starts: FloatArray  # (k, 3)
    largest: FloatArray  # (most mappers, 2): mean and deviation of the largest of nodes * M normal draws, by M
    scores: FloatArray  # (mappers, reducers): room for the least metric of each pair


@compiled_uncounted
def _descend(
    model: StageModel,
    space: SearchSpace,
    rate: float,
    nodes: int,
    mappers: int,
    reducers: int,
    start: FloatArray,
    goal: float,
    rival: float,
    place: FloatArray,
    answer: FloatArray,
) -> float:
    """Least metric that a compass search over the logarithms of the intervals comes to; the intervals go to `place`.

    It ends at once at a metric of `goal` or less, and where fine steps cannot come near `rival` any more. B_sh and B_ch
    also move together: at whole ratios the metric has a ridge that steps along one axis cannot climb.
    """
    a, a_sd = space.largest[mappers - 1, 0], space.largest[mappers - 1, 1]
    lowest, highest = space.lowest, space.highest
    x0 = min(max(start[0], lowest[0]), highest[0])
    x1 = min(max(start[1], lowest[1]), highest[1])
    x2 = min(max(start[2], lowest[2]), highest[2])
    best = judge(model, rate, nodes, mappers, reducers, x0, x1, x2, a, a_sd, answer)
    factor = 2.0
    while factor > _FINEST and best > goal:
        is_better = False
        for move in range(10):
            axis, step = move // 2, factor if move % 2 == 0 else 1.0 / factor
            y0, y1, y2 = x0, x1, x2
            if axis == 0:
                y0 = min(max(x0 * step, lowest[0]), highest[0])
            if axis == 1 or axis >= 3:
                y1 = min(max(x1 * step, lowest[1]), highest[1])
            if axis == 2 or axis == 3:
                y2 = min(max(x2 * step, lowest[2]), highest[2])
            elif axis == 4:
                y2 = min(max(x2 / step, lowest[2]), highest[2])
            if y0 == x0 and y1 == x1 and y2 == x2:
                continue
            metric = judge(model, rate, nodes, mappers, reducers, y0, y1, y2, a, a_sd, answer)
            if metric < best:
                best, x0, x1, x2, is_better = metric, y0, y1, y2, True
                if best <= goal:
                    break
        if not is_better:
            factor = math.sqrt(factor)
            if factor**_REACH * rival < best < UNSTABLE:
                break
    place[0], place[1], place[2] = x0, x1, x2
    return best


@compiled_uncounted
def _is_possible(model: StageModel, rate: float, nodes: int, mappers: int, reducers: int) -> bool:
    """Whether the threads could do the work without any overhead."""
    mapper = rate / (nodes * mappers) * model.c_map
    reducer = rate * model.alpha / (nodes * reducers) * model.c_red
    return mapper <= model.rho_max and reducer <= model.rho_max and mapper < 1.0 and reducer < 1.0


@compiled_uncounted
def least_latency(
    model: StageModel,
    space: SearchSpace,
    rate: float,
    nodes: int,
    goal: float,
    place: FloatArray,
    best: FloatArray,
    answer: FloatArray,
) -> float:
    """Least metric at `rate` over all settings, or the first of `goal` or less; `best` is (M, R, B_in, B_sh, B_ch).

    If `best` holds settings of another rate, they come first. Then every pair (M, R), from few threads to many, is
    tried from one start, and those that come near the best from the others too. `place` (3,) is room to work in.
    """
    least = math.inf
    if best[0] > 0.0:
        least = _descend(model, space, rate, nodes, int(best[0]), int(best[1]), best[2:], goal, math.inf, place, answer)
        best[2], best[3], best[4] = place[0], place[1], place[2]
        if least <= goal:
            return least
    space.scores[:] = 0.0
    for start in range(-1, len(space.starts)):
        for steps in range(len(space.mappers) + len(space.reducers) - 1):
            for m in range(max(0, steps - len(space.reducers) + 1), min(len(space.mappers) - 1, steps) + 1):
                mappers, reducers = space.mappers[m], space.reducers[steps - m]
                rival = max(min(least, UNSTABLE), goal)
                if start < 0 and least >= UNSTABLE:
                    continue
                if start > 0 and _SCORE * rival < space.scores[m, steps - m] < UNSTABLE:
                    continue
                if not _is_possible(model, rate, nodes, mappers, reducers):
                    continue
                origin = best[2:] if start < 0 else space.starts[start]
                metric = _descend(model, space, rate, nodes, mappers, reducers, origin, goal, rival, place, answer)
                score = space.scores[m, steps - m]
                space.scores[m, steps - m] = metric if score == 0.0 else min(score, metric)
                if metric < least:
                    least = metric
                    best[0], best[1], best[2], best[3], best[4] = mappers, reducers, place[0], place[1], place[2]
                if least <= goal:
                    return least
    return least


@compiled_uncounted
def largest_rate(
    model: StageModel,
    space: SearchSpace,
    rate: float,
    upper: float,
    nodes: int,
    goal: float,
    place: FloatArray,
    best: FloatArray,
    answer: FloatArray,
) -> float:
    """Largest rate from `rate` to `upper` at which some settings keep the metric within `goal`; 0 if there is none.

    Settings are tried first just above the largest rate so far, and have their own rate bisected only if they pass.
    Pairs (M, R) that stay far from the goal are not tried again.
    """
    reached = 0.0
    space.scores[:] = 0.0
    for start in range(len(space.starts)):
        for steps in range(len(space.mappers) + len(space.reducers) - 1):
            for m in range(max(0, steps - len(space.reducers) + 1), min(len(space.mappers) - 1, steps) + 1):
                mappers, reducers = space.mappers[m], space.reducers[steps - m]
                if _SCORE * goal < space.scores[m, steps - m] < UNSTABLE:
                    continue
                own = 0 if reached > 0.0 and start == 0 else 1
                while own < 2:
                    low = max(reached * (1.0 + _GAIN), rate)
                    if low > upper or not _is_possible(model, low, nodes, mappers, reducers):
                        break
                    origin = best[2:] if own == 0 else space.starts[start]
                    metric = _descend(model, space, low, nodes, mappers, reducers, origin, goal, goal, place, answer)
                    score = space.scores[m, steps - m]
                    space.scores[m, steps - m] = metric if score == 0.0 else min(score, metric)
                    own += 1
                    if metric > goal:
                        continue
                    best[0], best[1], best[2], best[3], best[4] = mappers, reducers, place[0], place[1], place[2]
                    high = upper
                    while high - low > _GAIN * low:
                        middle = (low + high) / 2.0
                        metric = _descend(
                            model, space, middle, nodes, mappers, reducers, best[2:], goal, goal, place, answer
                        )
                        if metric <= goal:
                            low = middle
                            best[2], best[3], best[4] = place[0], place[1], place[2]
                        else:
                            high = middle
                    reached, own = low, 1
    return reached
