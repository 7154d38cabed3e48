"""Where weights come from: the packaged default model, a Hugging Face id, a local folder, or a synthetic shape."""

from course_lib.models.sources import DEFAULT_MODEL, SHAPES, ModelFiles, resolve_model

__all__ = ["DEFAULT_MODEL", "SHAPES", "ModelFiles", "resolve_model"]
