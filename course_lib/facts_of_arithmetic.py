"""What follows from the number formats alone and is the same on every machine. A claim's `computed` names a function.

A function of `__all__` takes nothing and returns named findings, over which the claim's expressions speak.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np

from course_lib.numerics import BF16, FORMATS, FP16, FP32, FloatFormat, Floats, round_to, sum_in_order, ulp

__all__ = ["formats", "orders"]


def formats() -> Mapping[str, FloatFormat]:
    """The formats themselves: `fp16.significant_digits`, `tf32.exponent_bits`."""
    return FORMATS


def terms(n: int = 1536) -> Floats:
    """The n products of a dot product of bf16 numbers: normal, seeded, exact in fp32."""
    a, b = round_to(np.random.default_rng(4).normal(size=(2, n)), BF16)
    return a * b


@functools.cache
def orders(tries: int = 300) -> Mapping[str, SimpleNamespace]:
    """The sum of `terms`, added up in many random orders: how many results there are, and how far they lie apart.

    `spread` is the largest result minus the smallest; `relative` divides it by √Σx², the size that such a sum has as a
    rule, and `ulps` by the format's step at that size.
    """
    values = terms()
    order = np.random.default_rng(5).permuted(np.tile(np.arange(len(values)), (tries, 1)), axis=1)
    size = float(np.sqrt((values**2).sum()))
    found = {}
    for fmt in (FP32, FP16, BF16):
        sums = sum_in_order(values, order, fmt)
        spread = float(np.ptp(sums))
        found[fmt.name] = SimpleNamespace(
            results=len(np.unique(sums)), spread=spread, relative=spread / size, ulps=spread / float(ulp(size, fmt))
        )
    return found
