"""``casrnn report``: an HTML page about one or several trainings."""
