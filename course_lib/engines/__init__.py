"""Engines: `open_engine(config).run(prompts, schedule, sampling)` -> `Run`.

An engine lives in a child process whose environment is exactly what its configuration asks for. Processes and engines
are kept and reused, so opening the same configuration twice costs nothing.
"""

from course_lib.engines.engine import Engine, open_engine, shutdown_engines

__all__ = ["Engine", "open_engine", "shutdown_engines"]
