"""Float formats on paper: rounding, ulps, and sums whose order or split matters. Nothing here needs a GPU or torch.

Numbers are held as float64 and rounded to the format in question after each operation. For formats of up to 25
significant bits that equals arithmetic in the format itself, as float64 keeps more than twice the bits and two
(Figueroa, "When is double rounding innocuous?", SIGNUM 1995). Overflow to inf or nan gives no warning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from course_lib.errors import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FloatFormat:
    """A binary format with a sign bit, `exponent_bits`, and `mantissa_bits` stored bits (the leading one is implied).

    Attributes:
        has_inf: the largest exponent code means inf and nan, as in IEEE 754. Without it ("fn", finite) that code
            holds numbers too, all but the pattern of ones, which is nan; overflow gives nan.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    has_inf: bool = True

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def epsilon(self) -> float:
        """The step from 1 to the next larger number."""
        return 2.0**-self.mantissa_bits

    @property
    def significant_digits(self) -> float:
        """How many decimal digits the significand is worth: (mantissa_bits + 1) · log10 2."""
        return (self.mantissa_bits + 1) * math.log10(2)

    @property
    def max(self) -> float:
        """The largest finite number."""
        top = 2 ** (self.exponent_bits - 1) - self.has_inf
        return (2 - self.epsilon * (2 - self.has_inf)) * 2.0**top

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal number, and of all subnormal ones: -126 for fp32."""
        return 2 - 2 ** (self.exponent_bits - 1)

    @property
    def min_normal(self) -> float:
        return 2.0**self.min_exponent

    @property
    def min_subnormal(self) -> float:
        """The smallest positive number."""
        return 2.0 ** (self.min_exponent - self.mantissa_bits)

    def values(self, lo: float, hi: float, limit: int = 10_000) -> Floats:
        """Every finite number of this format from `lo` to `hi`, ascending; zero once.

        Raises:
            ConfigError: lo > hi or nan, or there are more than `limit`.
        """
        if not lo <= hi:
            raise ConfigError(f"no numbers from {lo} to {hi}: the first must not be larger")
        if lo > self.max or hi < -self.max:
            return np.empty(0)
        ends = np.clip([lo, hi], -self.max, self.max)
        near = round_to(ends, self)
        first, last = _index(near, self).astype(np.int64)
        first, last = first + (near[0] < ends[0]), last - int(near[1] > ends[1])
        if last - first + 1 > limit:
            raise ConfigError(f"{self.name} has {last - first + 1} numbers from {lo} to {hi}, more than {limit}")
        index = np.arange(first, last + 1)
        code, fraction = np.divmod(np.abs(index), 2**self.mantissa_bits)
        significand = fraction + np.where(code > 0, 2**self.mantissa_bits, 0.0)
        return np.sign(index) * np.ldexp(significand, np.maximum(code, 1) - 1 + self.min_exponent - self.mantissa_bits)


# fp32, fp16: IEEE 754. bf16: fp32's upper half (arXiv:1905.12322). tf32: fp32's range, fp16's precision, for inputs of
# tensor cores only (NVIDIA A100 whitepaper, 2020; PTX `cvt.rna.tf32` breaks ties away from zero, not to even).
# e4m3, e5m2: OCP 8-bit Floating Point Specification 1.0; torch's float8_e4m3fn and float8_e5m2.
FP32 = FloatFormat("fp32", 8, 23)
TF32 = FloatFormat("tf32", 8, 10)
BF16 = FloatFormat("bf16", 8, 7)
FP16 = FloatFormat("fp16", 5, 10)
E4M3 = FloatFormat("e4m3", 4, 3, has_inf=False)
E5M2 = FloatFormat("e5m2", 5, 2)
FORMATS = {f.name: f for f in (FP32, TF32, BF16, FP16, E4M3, E5M2)}


def round_to(x: ArrayLike, fmt: FloatFormat, saturate: bool = False) -> Floats:
    """`x` rounded to the nearest number of `fmt`, ties to even, subnormal numbers included; same shape.

    Beyond the largest: inf, or nan where the format has none, or ±max with `saturate`, as quantisers do, and as torch
    does for float8_e4m3fn since 2.12 (pytorch#178817). nan stays.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.asarray(x, float)
        step = _exponent(exact, fmt) - fmt.mantissa_bits
        y: Floats = np.ldexp(np.rint(np.ldexp(exact, -step)), step)
        beyond = fmt.max if saturate else np.inf if fmt.has_inf else np.nan
        return np.where(np.abs(y) > fmt.max, np.copysign(beyond, y), y)


def ulp(x: ArrayLike, fmt: FloatFormat) -> Floats:
    """The spacing of `fmt`'s numbers at |x|, between the powers of two around it; beyond the largest, the last spacing.

    Same shape. At zero the smallest positive number; nan for inf and nan.
    """
    size = np.abs(np.asarray(x, float))
    spacing = np.ldexp(1.0, _exponent(np.minimum(size, fmt.max), fmt) - fmt.mantissa_bits)
    return np.where(np.isfinite(size), spacing, np.nan)


def ulps_between(a: ArrayLike, b: ArrayLike, fmt: FloatFormat) -> Floats:
    """How many steps from one number of `fmt` to the next lead from a to b, both rounded to `fmt` first.

    Whole numbers, 0 for +0 and -0; inf lies one step past the largest number; nan where either is nan.
    """
    return np.abs(_index(round_to(a, fmt), fmt) - _index(round_to(b, fmt), fmt))


def sum_in_order(values: ArrayLike, order: ArrayLike | None, fmt: FloatFormat) -> Floats:
    """Add one value after another, rounding to `fmt` each time.

    Args:
        values: (…, n), rounded to `fmt` first; the last axis is summed, and 0 is the sum of no values.
        order: n indices, or (k, n) indices for k orders of (n,) values at once; None is as they come.
    """
    terms = round_to(values, fmt)
    if order is not None:
        index = np.asarray(order, int)
        if index.shape[-1:] != terms.shape[-1:] or (np.sort(index, -1) != np.arange(terms.shape[-1])).any():
            raise ConfigError(f"an order of {terms.shape[-1]} values must name each index once")
        terms = terms[..., index]
    return _accumulate(terms, fmt)


def split_sum(values: ArrayLike, n_splits: int, fmt: FloatFormat) -> Floats:
    """Split-K: `n_splits` stretches of nearly equal length, each summed in order, then the partial sums in order.

    As flash-decoding and split-K products do it, which choose the number of splits by the batch's shape.
    """
    if n_splits < 1:
        raise ConfigError(f"n_splits is {n_splits}; it must be at least 1")
    parts = np.array_split(np.asarray(values, float), n_splits, axis=-1)
    return sum_in_order(np.stack([sum_in_order(part, None, fmt) for part in parts], -1), None, fmt)


def pairwise_sum(values: ArrayLike, fmt: FloatFormat) -> Floats:
    """A tree: neighbours are added, then those sums; the error grows with log n instead of n (Higham, SISC 1993)."""
    terms = round_to(values, fmt)
    with np.errstate(invalid="ignore"):
        while (n := terms.shape[-1]) > 1:
            pairs = round_to(terms[..., : n - 1 : 2] + terms[..., 1::2], fmt)
            terms = np.concatenate([pairs, terms[..., n - n % 2 :]], -1)
    return terms[..., 0] if terms.shape[-1] else np.zeros(terms.shape[:-1])


def dot_rounded(a: ArrayLike, b: ArrayLike, input_fmt: FloatFormat, accumulate_fmt: FloatFormat) -> Floats:
    """Σ aᵢbᵢ over the last axis with inputs rounded to one format and the running sum to another, in order.

    Products are exact, as in a fused multiply-add; with fp32 inputs a last bit may differ from one, very rarely.
    """
    with np.errstate(invalid="ignore"):
        return _accumulate(round_to(a, input_fmt) * round_to(b, input_fmt), accumulate_fmt)


def _accumulate(terms: Floats, fmt: FloatFormat) -> Floats:
    total = np.zeros(terms.shape[:-1])
    with np.errstate(invalid="ignore"):
        for i in range(terms.shape[-1]):
            total = round_to(total + terms[..., i], fmt)
    return total


def _exponent(x: Floats, fmt: FloatFormat) -> NDArray[np.int32]:
    """floor(log2 |x|), not below that of the subnormal numbers."""
    return np.where(np.isfinite(x) & (x != 0), np.maximum(np.frexp(x)[1] - 1, fmt.min_exponent), fmt.min_exponent)


def _index(x: Floats, fmt: FloatFormat) -> Floats:
    """Which number of `fmt` x is, counted from zero in order of size (-1, 0, 1 around zero); nan for nan."""
    size = np.minimum(np.abs(x), fmt.max)
    exponent = _exponent(size, fmt)
    index = np.ldexp(size, fmt.mantissa_bits - exponent) + (exponent - fmt.min_exponent) * 2.0**fmt.mantissa_bits
    return np.copysign(index + np.isinf(x), x)
