"""The few errors that the library raises. Each says what was wrong, with what value, and what to do."""


class CourseError(Exception):
    """Base class: catch this to catch everything that the library raises on purpose."""


class ConfigError(CourseError, ValueError):
    """A field that does not exist, or a value that it cannot have."""


class PromptError(CourseError, ValueError):
    """No prompts, an empty prompt, or one that does not fit into the context."""


class NotAvailableHere(CourseError):
    """This machine or installation lacks something: a model, a GPU, memory, disk, a package."""


class EngineFailed(CourseError, RuntimeError):
    """The engine's process reported an error or died. The message ends with its log's last lines."""


class TraceMismatch(CourseError, ValueError):
    """Two traces that cannot be compared, because they do not answer the same prompt."""


class EvidenceMismatch(CourseError):
    """A record that is damaged, of a newer schema, or made by another definition of its experiment."""
