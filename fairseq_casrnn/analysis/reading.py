"""What the analyses of a model's layers share: options for the model, and names of layers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

V = TypeVar("V")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the model."""
    parser.add_argument("data", type=Path, help="the model's training data (data-bin)")
    parser.add_argument("--path", required=True, type=Path, help="checkpoint, or its folder")


def add_reading_arguments(parser: argparse.ArgumentParser, sentences: int) -> None:
    """Options for the model and the sentences that it reads."""
    add_model_arguments(parser)
    parser.add_argument("--subset", default="valid", help="split to read (default: valid)")
    parser.add_argument(
        "--sentences",
        type=int,
        default=sentences,
        help=f"number of sentences (default: {sentences})",
    )


def by_layer_name(values: Mapping[tuple[int, str], V]) -> dict[str, V]:
    """Replace the keys (layer from 0, direction) by names such as "layer 1, backward"."""
    both = any(direction for _, direction in values)
    ways = {"": ", forward" if both else "", "_reverse": ", backward"}
    return {f"layer {layer + 1}{ways[way]}": value for (layer, way), value in values.items()}
