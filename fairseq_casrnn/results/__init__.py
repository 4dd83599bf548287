"""Results as data: a line of JSON for each run, a YAML file for each page, rendered to Markdown."""
