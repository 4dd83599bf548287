"""Variables in the values of a recipe: ``$NAME``, and arithmetic on them, ``$(933 * EPOCHS)``."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Mapping
from string import Template

from fairseq_casrnn.errors import UserError, quoted

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,  # raises OverflowError, whereas ** of large integers would not end
    ast.Eq: operator.eq,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS = {"max": max, "min": min}
EXPRESSION = re.compile(r"\$\((?P<expression>.*?)(?P<format>:\.\d+g)?\)", re.DOTALL)


def fill(text: str, variables: Mapping[str, str]) -> str:
    """``text`` with its variables replaced.

    Args:
        text: a text with ``$NAME`` or ``${NAME}``, or a single ``$(EXPRESSION)`` with an optional
            format such as ``:.2g`` at its end.
        variables: values by name.

    Raises:
        UserError: a variable is unknown, or an expression is invalid or has values that are not
            positive numbers.
    """
    found = EXPRESSION.fullmatch(text)
    if found:
        value = evaluate(found["expression"], variables)
        try:
            return format(value, (found["format"] or ":")[1:])
        except ValueError:
            raise UserError(
                f"{quoted(text)} formats a text; only numbers have a format, drop it"
            ) from None
    try:
        return Template(text).substitute(variables)
    except KeyError as error:
        raise UserError(
            f"{quoted(text)} has an unknown variable {error.args[0]}; declare it under variables"
        ) from None
    except ValueError:
        raise UserError(f"{quoted(text)} has a $ without a name; write $$ for a $") from None


def evaluate(expression: str, variables: Mapping[str, str]):
    """The value of an arithmetic expression or a comparison, such as ``PAPER == 'shortcut'``.

    A variable by itself is a text. In arithmetic, and in comparisons with numbers, it must be a
    positive integer.

    Raises:
        UserError: see :func:`fill`.
    """
    try:
        node = ast.parse(expression.strip(), mode="eval").body
        return _value(node, variables)
    except UserError:
        raise
    except (SyntaxError, TypeError, ValueError, ArithmeticError):
        raise UserError(
            f"{quoted(expression)} cannot be computed; use variables, numbers, + - * / **, "
            "comparisons, max and min"
        ) from None


def _value(node: ast.expr, variables: Mapping[str, str], numeric: bool = False):
    match node:
        case ast.Constant(int() | float() | str() as value):
            return value
        case ast.Name(name):
            return _variable(name, variables, numeric)
        case ast.BinOp(left, kind, right) if type(kind) in OPERATORS:
            operands = (_value(side, variables, numeric=True) for side in (left, right))
            return OPERATORS[type(kind)](*operands)
        case ast.Compare(left, [kind], [right]) if type(kind) in OPERATORS:
            sides = (left, right)
            numbers = not any(isinstance(getattr(side, "value", 0), str) for side in sides)
            return OPERATORS[type(kind)](*(_value(side, variables, numbers) for side in sides))
        case ast.Call(ast.Name(name), arguments, []) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(one, variables, numeric=True) for one in arguments))
    raise SyntaxError


def _variable(name: str, variables: Mapping[str, str], numeric: bool):
    if name not in variables:
        raise UserError(f"there is no variable {name}; declare it under variables")
    text = variables[name]
    if not numeric:
        return text
    if not re.fullmatch("[1-9][0-9]*", text, re.ASCII):
        raise UserError(f"{name} must be a positive number, not '{text}'")
    return int(text)
