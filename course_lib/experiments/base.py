"""What an experiment is: arms that differ in one thing, pairs that compare them, and the prompts they share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from course_lib.config import EngineConfig, Frozen, Sampling, Schedule
from course_lib.errors import ConfigError


class Arm(Frozen):
    """One way to get answers.

    Attributes:
        scores: the name of another arm. Instead of generating, this arm scores that arm's answers (teacher forcing).
        fresh: start a new process for it, to include whatever a process start may change.
    """

    config: EngineConfig = Field(default_factory=EngineConfig)
    schedule: Schedule = Field(default_factory=Schedule)
    scores: str | None = None
    fresh: bool = False


class Pair(Frozen):
    """A comparison of arm `b` against arm `a`.

    Attributes:
        role: "effect" is what the experiment asks about; "rerun" repeats an arm with nothing changed, which gives the
            noise floor; "control" is where the effect must be absent.
        because: why the arms differ in more than one thing, where they do.
    """

    a: str
    b: str
    role: Literal["effect", "rerun", "control"] = "effect"
    because: str = ""


class Experiment(Frozen):
    """Arms × prompts. `pairs` are named, and the names are what claims speak of.

    Raises:
        ConfigError: a pair changes more than one thing without saying why, there is no rerun, or a name is unknown.
    """

    name: str
    question: str
    arms: dict[str, Arm]
    pairs: dict[str, Pair]
    prompts: tuple[str, ...] | tuple[tuple[int, ...], ...]
    sampling: Sampling = Field(default_factory=Sampling)
    chat: bool = True
    needs_gpu: bool | None = None
    keep_traces: int = Field(4, ge=1, description="how many prompts' traces a record keeps; metrics cover all")

    @model_validator(mode="after")
    def _honest(self) -> Self:
        if not any(p.role == "rerun" for p in self.pairs.values()):
            raise ValueError("an experiment needs a rerun pair: without a noise floor a difference means nothing")
        for name, arm in self.arms.items():
            if arm.scores is not None and (arm.scores not in self.arms or self.arms[arm.scores].scores is not None):
                raise ValueError(f"arm '{name}' scores '{arm.scores}', which is no arm that generates")
        for name, pair in self.pairs.items():
            if unknown := {pair.a, pair.b} - self.arms.keys():
                raise ValueError(f"pair '{name}' names unknown arms {sorted(unknown)}")
            changed = self.changed(name)
            if pair.role == "rerun" and changed:
                raise ValueError(f"rerun pair '{name}' changes {', '.join(changed)}")
            if len(changed) > 1 and not pair.because:
                raise ValueError(f"pair '{name}' changes {', '.join(changed)}; change one thing or say why (`because`)")
            if not changed and pair.role != "rerun":
                raise ValueError(f"pair '{name}' changes nothing; call it a rerun")
        return self

    def changed(self, pair: str) -> list[str]:
        """The fields in which a pair's arms differ, e.g. ["dtype"] or ["schedule"]."""
        a, b = self.arms[self.pairs[pair].a], self.arms[self.pairs[pair].b]
        return [*a.config.diff(b.config), *(["schedule"] if a.schedule != b.schedule else [])]

    def only(self, *pairs: str) -> Experiment:
        """The same experiment with these pairs and their arms alone, for a reader who waits."""
        if unknown := set(pairs) - self.pairs.keys():
            raise ConfigError(f"{self.name} has no pair {sorted(unknown)}; it has {', '.join(self.pairs)}")
        needed = {n for p in pairs for n in (self.pairs[p].a, self.pairs[p].b)}
        needed |= {s for n in needed if (s := self.arms[n].scores)}
        return self.but(
            pairs={n: p for n, p in self.pairs.items() if n in pairs},
            arms={n: a for n, a in self.arms.items() if n in needed},
        )

    def shorter(self, prompts: int | None = None, max_tokens: int | None = None) -> Experiment:
        """The same experiment on fewer prompts or fewer tokens."""
        out = self.but(prompts=self.prompts[:prompts]) if prompts else self
        return out.but(sampling=out.sampling.but(max_tokens=max_tokens)) if max_tokens else out

    def on(self, **config: Any) -> Experiment:
        """The same experiment with a field of every arm's configuration changed, e.g. `on(model=...)`."""
        arms = {n: a.but(config=a.config.but(**config)) for n, a in self.arms.items()}
        return self.but(arms=arms)

    def definition(self) -> str:
        """The digest of everything that decides what is measured. A record made by another definition is stale."""
        return self.but(question="-").digest()


def reruns(pairs: dict[str, Pair], arms: dict[str, Arm], of: Iterable[str]) -> None:
    """Add to `arms` and `pairs` a second run of each named arm: "x" gets the arm "x again" and the pair "x_rerun"."""
    for name in of:
        arms[f"{name} again"] = arms[name]
        pairs[f"{name.replace(' ', '_')}_rerun"] = Pair(a=name, b=f"{name} again", role="rerun")
