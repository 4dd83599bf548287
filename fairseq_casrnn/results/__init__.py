"""Results as data, rendered to Markdown: a line of JSON per run, a YAML file per page."""
