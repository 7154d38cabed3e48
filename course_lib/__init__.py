"""Same prompt, different tokens: compare runs of vLLM, find out why they differ, and guard against it."""

__version__ = "0.1.0"
