"""The documentation as data: its pages, links and commands, and the parts of the site that are made from code."""
