"""Recipes: an experiment as a YAML file, run by ``casrnn run STEP RECIPE``."""
