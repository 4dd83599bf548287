"""Analyses of trained models: plots, and measurements of gates, routing and predictions."""
