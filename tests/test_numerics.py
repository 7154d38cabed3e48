"""Rounding and sums in small float formats, against hand calculation and against torch's own conversions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import ConfigError
from course_lib.numerics import (
    BF16,
    E4M3,
    E5M2,
    FORMATS,
    FP16,
    FP32,
    TF32,
    FloatFormat,
    dot_rounded,
    pairwise_sum,
    round_to,
    split_sum,
    sum_in_order,
    ulp,
    ulps_between,
)

TORCH = {"bf16": "bfloat16", "fp16": "float16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "fp32": "float32"}
anything = st.floats(width=32)
formats = pytest.mark.parametrize("fmt", FORMATS.values(), ids=list(FORMATS))


def same(a, b):
    """Equal value by value, with nan equal to nan, and zeros of the same sign."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0]))


def test_formats_have_the_constants_of_their_standards():
    #      max                    min_normal    min_subnormal  epsilon  bits
    want = {
        "fp32": (float(np.finfo(np.float32).max), 2.0**-126, 2.0**-149, 2.0**-23, 32),
        "fp16": (65504.0, 2.0**-14, 2.0**-24, 2.0**-10, 16),
        "bf16": (3.3895313892515355e38, 2.0**-126, 2.0**-133, 2.0**-7, 16),
        "tf32": (3.4011621342146535e38, 2.0**-126, 2.0**-136, 2.0**-10, 19),
        "e4m3": (448.0, 2.0**-6, 2.0**-9, 2.0**-3, 8),  # OFP8 table 2
        "e5m2": (57344.0, 2.0**-14, 2.0**-16, 2.0**-2, 8),
    }
    for name, fmt in FORMATS.items():
        assert (fmt.max, fmt.min_normal, fmt.min_subnormal, fmt.epsilon, fmt.bits) == want[name], name
    assert [round(f.significant_digits, 2) for f in (FP32, TF32, BF16)] == [7.22, 3.31, 2.41]


@pytest.mark.parametrize("name", TORCH)
def test_constants_agree_with_torch(name):
    torch = pytest.importorskip("torch")
    info, fmt = torch.finfo(getattr(torch, TORCH[name])), FORMATS[name]
    assert (info.max, info.smallest_normal, info.eps, info.bits) == (fmt.max, fmt.min_normal, fmt.epsilon, fmt.bits)


@pytest.mark.parametrize("name", TORCH)
def test_rounding_agrees_with_torch(name):
    """Random bit patterns, every tie between neighbours, subnormal numbers, overflow, inf, nan, both zeros."""
    torch = pytest.importorskip("torch")
    fmt = FORMATS[name]
    patterns = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    numbers = fmt.values(-fmt.max, fmt.max, limit=2**17) if fmt.bits <= 16 else np.zeros(1)
    ties = ((numbers[:-1] + numbers[1:]) / 2).astype(np.float32)
    beside = [np.nextafter(ties, np.float32(s)) for s in (np.inf, -np.inf)]
    with np.errstate(over="ignore", invalid="ignore"):
        edge = np.float32(fmt.max + ulp(fmt.max, fmt) / 2)
        edges = [edge, np.nextafter(edge, np.float32(0)), np.nextafter(edge, np.float32(np.inf)), np.inf, np.nan, 0.0]
        small = np.float32(fmt.min_subnormal / 2)
        x = np.concatenate([patterns, ties, *beside, numbers, edges, np.negative(edges), [small, -small]])
        x = x.astype(np.float32)
    dtype = getattr(torch, TORCH[name])
    want = torch.from_numpy(x).to(dtype).double().numpy()
    # torch's e4m3 gave nan on overflow up to 2.11 and saturates from 2.12 on (pytorch#178817)
    saturates = torch.tensor(1e30).to(dtype).item() == fmt.max
    got = round_to(x, fmt, saturate=saturates)
    wrong = np.flatnonzero(~((got == want) | (np.isnan(got) & np.isnan(want))))
    assert not wrong.size, [(float(x[i]), float(got[i]), float(want[i])) for i in wrong[:5]]
    assert same(got, want)


def test_rounding_ties_to_even_by_hand():
    # bf16 at 1 steps by 1/128: half a step up is a tie, and even is below at 1, above at 1 + 1/128
    assert same(round_to([1 + 1 / 256, 1 + 3 / 256, -1 - 1 / 256], BF16), [1, 1 + 4 / 256, -1])
    assert round_to(257, BF16) == 256
    assert round_to(2049, FP16) == round_to(2049, TF32) == 2048 and round_to(2051, FP16) == 2052
    assert round_to(16_777_217, FP32) == 16_777_216
    # 0.1 in fp32 and in bf16, from their bit patterns 0x3DCCCCCD and 0x3DCD
    assert round_to(0.1, FP32) == 13421773 / 2**27
    assert round_to(0.1, BF16) == 205 / 2**11


def test_overflow_is_inf_or_nan_or_saturates():
    assert same(round_to([65519.9, 65520, -1e9, np.inf], FP16), [65504, np.inf, -np.inf, np.inf])
    assert same(round_to([464, 464.1, -500, np.inf], E4M3), [448, np.nan, np.nan, np.nan])
    assert same(round_to([464.1, -500, np.inf, np.nan], E4M3, saturate=True), [448, -448, 448, np.nan])
    assert same(round_to([1e6, -np.inf], E5M2, saturate=True), [57344, -57344])


@formats
@given(x=st.lists(anything, min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_rounding_properties(fmt, x):
    x = np.array(x)
    y = round_to(x, fmt)
    assert same(round_to(y, fmt), y), "rounding twice is rounding once"
    assert same(round_to(-x, fmt), -y), "symmetric"
    fits = np.abs(x) <= fmt.max
    assert (np.abs(y[fits] - x[fits]) <= ulp(x[fits], fmt) / 2).all(), "at most half an ulp away"
    pairs = np.sort(x[fits])
    assert (np.diff(round_to(pairs, fmt)) >= 0).all(), "monotonic"


def test_ulp_by_hand():
    assert same(ulp([1, 1.99, 2, -3, 0], BF16), [2**-7, 2**-7, 2**-6, 2**-6, 2**-133])
    assert same(ulp([448, 1e9, np.inf, np.nan], E4M3), [32, 32, np.nan, np.nan])
    assert ulp(3.0, FP32) == np.spacing(np.float32(3.0))


def test_ulps_between_by_hand():
    a, b = [1, 1, -1, 0.0, 1], [1 + 2**-7, 2, 1, -0.0, np.nan]
    assert same(ulps_between(a, b, BF16), [1, 128, 2 * 127 * 128, 0, np.nan])
    assert ulps_between(-FP16.min_subnormal, FP16.min_subnormal, FP16) == 2
    assert ulps_between(65504, np.inf, FP16) == 1
    # across a power of two the steps differ in size and still count one each
    assert ulps_between(2 - 2**-7, 2 + 2**-6, BF16) == 2


@given(a=anything, b=anything)
@settings(max_examples=100, deadline=None)
def test_ulps_between_agrees_with_the_order_of_bit_patterns(a, b):
    def place(x):
        bits = int(np.float32(x).view(np.int32))
        return bits if bits >= 0 else -(bits & 0x7FFFFFFF)

    if math.isnan(a) or math.isnan(b):
        assert np.isnan(ulps_between(a, b, FP32))
    else:
        assert ulps_between(a, b, FP32) == abs(place(a) - place(b))


def test_values_lists_every_number_once():
    assert E5M2.values(1, 4).tolist() == [1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4]
    assert E4M3.values(0, 0.01).tolist() == [0, 2**-9, 2**-8, 3 * 2**-9, 2**-7, 5 * 2**-9]
    everything = E4M3.values(-math.inf, math.inf)
    assert len(everything) == 253  # 256 patterns less two nans and one zero
    assert same(round_to(everything, E4M3), everything) and (np.diff(everything) > 0).all()
    assert FP16.values(0.1, 0.1).size == 0 and FP16.values(1, 1).tolist() == [1]
    assert E4M3.values(449, 1e9).size == E4M3.values(-1e9, -449).size == 0


@formats
@given(lo=st.floats(-500, 500), width=st.floats(0, 1e-3))
@settings(max_examples=30, deadline=None)
def test_values_are_neighbours_inside_the_bounds(fmt, lo, width):
    try:
        found = fmt.values(lo, lo + width)
    except ConfigError:
        assert ulps_between(lo, lo + width, fmt) >= 9_998
        return
    assert ((found >= lo) & (found <= lo + width)).all() and same(round_to(found, fmt), found)
    if found.size:
        assert (ulps_between(found[:-1], found[1:], fmt) == 1).all()
        step = ulp(found[[0, -1]], fmt)
        assert found[0] - step[0] < lo and found[-1] + step[1] > lo + width, "none is missing at the ends"


@pytest.mark.parametrize("bounds", [(2, 1), (math.nan, 1), (1, math.nan)])
def test_values_refuses_bad_bounds(bounds):
    with pytest.raises(ConfigError, match="no numbers from"):
        FP16.values(*bounds)


def test_values_says_how_many_are_too_many():
    with pytest.raises(ConfigError, match="fp32 has 8388609 numbers from 1 to 2, more than 10000"):
        FP32.values(1, 2)


def test_addition_is_not_associative():
    # 1e8 swallows 1 in fp32 (its ulp is 8), unless the large ones cancel first
    assert sum_in_order([1e8, 1, -1e8], None, FP32) == 0
    assert sum_in_order([1e8, 1, -1e8], [0, 2, 1], FP32) == 1
    assert sum_in_order([[1e8, 1, -1e8]], [[0, 1, 2], [2, 0, 1]], FP32).tolist() == [[0, 1]]
    # the first sum that stalls: 256 + 1 in bf16 is a tie, and goes back to 256
    assert sum_in_order(np.ones(1000), None, BF16) == 256
    assert sum_in_order(np.ones(5000), None, FP16) == 2048
    assert split_sum(np.ones(1000), 4, BF16) == 1000  # 250 four times, each exact; 1000 is a bf16 number
    assert pairwise_sum(np.ones(1024), BF16) == 1024


def test_splits_by_hand():
    # bf16 around 256 steps by 2: in order, each 1 is lost; in two halves, 1 + 1 is not
    values = [256, 1, 1, 1]
    assert sum_in_order(values, None, BF16) == 256
    assert split_sum(values, 1, BF16) == 256
    assert split_sum(values, 2, BF16) == 258  # (256 + 1) + (1 + 1) = 256 + 2
    assert pairwise_sum(values, BF16) == 258
    assert split_sum(values, 9, BF16) == sum_in_order(values, None, BF16), "more splits than values: one each"
    # an odd number: the last one waits. (1 + 1) + (1 + 1), then + 256
    assert pairwise_sum([1, 1, 1, 1, 256], BF16) == 260
    assert pairwise_sum([1, 1, 256], BF16) == 258


@pytest.mark.parametrize("dtype, fmt", [(np.float32, FP32), (np.float16, FP16)])
def test_sums_agree_with_the_machine(dtype, fmt):
    values = np.random.default_rng(1).normal(size=(5, 300)).astype(dtype)
    assert same(sum_in_order(values, None, fmt), np.add.accumulate(values, 1, dtype)[:, -1])
    parts = np.stack([np.add.accumulate(v, 1, dtype)[:, -1] for v in np.array_split(values, 7, 1)], 1)
    assert same(split_sum(values, 7, fmt), np.add.accumulate(parts, 1, dtype)[:, -1])


def test_bf16_sums_agree_with_torch():
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(2).normal(size=300)
    total = torch.zeros((), dtype=torch.bfloat16)
    for v in torch.tensor(values).bfloat16():
        total = total + v
    assert sum_in_order(values, None, BF16) == float(total)


@formats
@given(values=st.lists(st.floats(-100, 100), max_size=12), splits=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_sums_stay_within_the_known_error(fmt, values, splits, seed):
    """|error| <= (n - 1) u Σ|x| for any order (Higham 1993), u half an epsilon; subnormal additions are exact."""
    terms = round_to(values, fmt)
    n, exact = len(values), sum(map(Fraction, terms.tolist()), Fraction())
    size = sum(abs(terms.tolist()[i]) for i in range(n))
    if size * (1 + fmt.epsilon) ** 12 > fmt.max:
        return
    bound = 1.01 * max(n - 1, 0) * fmt.epsilon / 2 * size * (1 + fmt.epsilon) ** n
    order = np.random.default_rng(seed).permutation(n)
    for total in (sum_in_order(values, order, fmt), split_sum(values, splits, fmt), pairwise_sum(values, fmt)):
        assert total.shape == () and abs(Fraction(float(total)) - exact) <= bound
        assert same(round_to(total, fmt), total)


def test_sums_of_nothing_and_of_bad_numbers():
    assert sum_in_order([], None, BF16) == split_sum([], 3, BF16) == pairwise_sum([], BF16) == 0
    assert dot_rounded([], [], BF16, FP32) == 0
    assert sum_in_order(np.zeros((4, 0)), None, BF16).tolist() == [0, 0, 0, 0]
    assert np.isnan(sum_in_order([np.inf, -np.inf], None, FP32)) and np.isnan(pairwise_sum([np.nan, 1], FP32))
    assert sum_in_order([6e4, 6e4, -6e4], None, FP16) == np.inf, "an overflow on the way stays"
    assert np.isnan(sum_in_order([400, 400], None, E4M3))


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [[0, 1, 2], [0, 0, 1]]])
def test_an_order_must_name_each_index_once(order):
    with pytest.raises(ConfigError, match="an order of 3 values"):
        sum_in_order([1, 2, 3], order, FP32)


def test_splits_must_be_positive():
    with pytest.raises(ConfigError, match="n_splits is 0"):
        split_sum([1, 2], 0, FP32)


def test_dot_rounds_inputs_and_sums_in_their_own_formats():
    # 257 is not a bf16 number; the product of the rounded inputs, 256 * 3, is
    assert dot_rounded([257], [3], BF16, FP32) == 768
    assert dot_rounded([257], [3], FP32, FP32) == 771
    assert dot_rounded([257], [3], FP32, BF16) == 772  # 771 lies between 768 and 772, nearer to 772
    # fp8 inputs, 1008 + 1008 + 33 + 1: past 2048, fp16 steps by 2, and both 2049s are ties that go back to 2048
    a, b = [448, 448, 11, 1], [2.25, 2.25, 3, 1]
    assert dot_rounded(a, b, E4M3, FP32) == 2050 and dot_rounded(a, b, E4M3, FP16) == 2048
    # an accumulator of 14 significant bits, a format of one's own, holds 2050
    assert dot_rounded(a, b, E4M3, FloatFormat("14 bits", 8, 13)) == 2050


def test_dot_agrees_with_torch_products():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 6, 200))
    x, y = torch.tensor(a).bfloat16().float(), torch.tensor(b).bfloat16().float()
    want = torch.zeros(6)
    for i in range(200):
        want = want + x[:, i] * y[:, i]  # a product of two bf16 is exact in fp32
    assert same(dot_rounded(a, b, BF16, FP32), want.numpy())


def test_shapes_broadcast():
    assert round_to(np.zeros((2, 3)), FP16).shape == ulp(np.zeros((2, 3)), FP16).shape == (2, 3)
    assert dot_rounded(np.ones((4, 5)), np.ones(5), BF16, FP32).tolist() == [5] * 4
    assert split_sum(np.ones((3, 8)), 3, BF16).shape == pairwise_sum(np.ones((3, 7)), BF16).shape == (3,)
