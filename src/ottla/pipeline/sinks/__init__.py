"""Where rows go: topics, tables, files, databases, the console."""
