"""Checks of options and files before fairseq uses them; each raises UserError."""
