"""Every setting: Kafka's name, type, unit, default and meaning.

`load` reads a properties file; `python -m ottla.config` prints all settings as Markdown.
"""

from ottla.config.loading import load

__all__ = ["load"]
