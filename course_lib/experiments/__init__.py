"""The registry: one short file per experiment, found by its name."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from course_lib.errors import ConfigError
from course_lib.experiments.base import Arm, Experiment, Pair, reruns

__all__ = ["Arm", "Experiment", "Pair", "experiment", "names", "reruns"]


def names() -> list[str]:
    """The names of all experiments, e.g. "batch-1-vs-8"."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if m.name != "base")


def experiment(name: str) -> Experiment:
    """The experiment of this name.

    Raises:
        ConfigError: there is none; says which are near.
    """
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=3) or names()
        raise ConfigError(f"no experiment is called '{name}'; there is {', '.join(near)}")
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}").EXPERIMENT
