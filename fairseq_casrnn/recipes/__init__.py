"""Recipes: experiments as YAML files, run by ``casrnn run STEP RECIPE``."""
