"""Conditions in workflow files: `state.review.confidence >= 0.8 and not state.review.blocked`.

A small language, read by Python's own parser and evaluated here, node by node: paths into the state,
literals, comparisons, `and or not` (also `&& || !`), `in`, arithmetic, `len`, `a if b else c`, and
`state.get('review', {}).get('blocked')` as Python has it. Nothing else can be called but what `CALLS` names,
nothing outside the state can be reached, and the work is bounded.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ..errors import BadInput, shown

LONGEST = 1_000
MOST_NODES = 200

CALLS: dict[str, Callable[..., Any]] = {
    "len": len,
    "min": min,
    "max": max,
    "abs": abs,
    "exists": lambda value: value is not None,
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, many: value in many,
    ast.NotIn: lambda value, many: value not in many,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.Mod: lambda a, b: _number(a) % _number(b),
}


def _number(value: Any) -> Any:
    """Text knows `%`, too, and would make more text than there is memory for."""
    if not isinstance(value, int | float):
        raise TypeError("% is for numbers")
    return value


NAMES = {"true": True, "false": False, "null": None, "none": None}

_WRITTEN_OTHERWISE = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|&&|\|\||!(?!=)|\$?\{\{|\$?\{|\}""")
_MEANS = {"&&": " and ", "||": " or ", "!": " not "}


def evaluate(text: str, state: Mapping[str, Any], **more: Any) -> Any:
    """The value of an expression over `state`, and whatever else is given by name. What is not there is None;
    comparing it with `<` and the like is false. Raises BadInput for what is not an expression."""
    tree = _parsed(text)
    try:
        return _value(tree, {"state": state, **NAMES, **more})
    except (TypeError, ZeroDivisionError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(f"the expression {shown(text)} cannot be evaluated: {error}") from error


def is_true(text: str | bool, state: Mapping[str, Any], **more: Any) -> bool:
    return text if isinstance(text, bool) else bool(evaluate(text, state, **more))


def check_expression(text: str) -> str | None:
    """What is wrong with an expression, or None."""
    try:
        _parsed(text)
    except BadInput as error:
        return str(error)
    return None


@lru_cache(512)
def _parsed(text: str) -> ast.expr:
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise BadInput(f"an expression is text of 1 to {LONGEST:,} characters, such as state.qa.ok == true")
    try:
        tree = ast.parse(_as_python(text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadInput(
            f"{shown(text)} is not an expression: write a comparison such as state.qa.confidence >= 0.8"
        ) from None
    nodes = list(ast.walk(tree))
    if len(nodes) > MOST_NODES:
        raise BadInput(f"{shown(text)} is too long: an expression has at most {MOST_NODES} parts")
    for node in nodes:
        _check(node, text)
    return tree


def _as_python(text: str) -> str:
    """An expression as Python writes it: `${{ … }}`, `{{ … }}` and `${ … }` around it or a part of it are taken away,
    `{…}` is a literal."""
    closing: list[str] = []

    def written(match: re.Match[str]) -> str:
        word = match[0]
        if match[1]:
            return word  # text in quotes
        if word.endswith("{"):
            closing.extend([" "] * word.count("{") if word != "{" else ["}"])
            return "{" if word == "{" else " "
        if word == "}":
            return closing.pop() if closing else "}"
        return _MEANS[word]

    return _WRITTEN_OTHERWISE.sub(written, text)


_PLAIN = (
    ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Compare, ast.BoolOp, ast.And, ast.Or,
    ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.IfExp, ast.List, ast.Tuple, ast.Dict, ast.Call,
    *COMPARE, *ARITHMETIC,
)  # fmt: skip


def _check(node: ast.AST, text: str) -> None:
    if not isinstance(node, _PLAIN):
        raise BadInput(f"{shown(text)} uses {type(node).__name__}, which expressions do not have")
    if isinstance(node, ast.Call) and (node.keywords or not (_calls_ours(node) or _calls_get(node))):
        raise BadInput(
            f"{shown(text)} calls something: only {', '.join(CALLS)} and .get(name, default) can be called"
        )
    if isinstance(node, ast.Dict) and None in node.keys:
        raise BadInput(f"{shown(text)} unpacks something: write each name and value")
    if isinstance(node, ast.Constant) and not (
        node.value is None or isinstance(node.value, str | int | float)
    ):
        raise BadInput(f"{shown(text)} holds a constant that state cannot hold")


def _calls_ours(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in CALLS


def _calls_get(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "get" and len(node.args) in (1, 2)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _member(names, node.id) if node.id in names else _member(names["state"], node.id)
    if isinstance(node, ast.Attribute):
        return _member(_value(node.value, names), node.attr)
    if isinstance(node, ast.Subscript):
        return _member(_value(node.value, names), _value(node.slice, names))
    if isinstance(node, ast.BoolOp):
        return _both_or_either(node, names)
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, names)
        return not inner if isinstance(node.op, ast.Not) else -inner
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, names) else node.orelse, names)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(element, names) for element in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_value(key, names): _value(value, names) for key, value in pairs if key is not None}
    if isinstance(node, ast.Compare):
        return _compared(node, names)
    if isinstance(node, ast.BinOp):
        return ARITHMETIC[type(node.op)](_value(node.left, names), _value(node.right, names))
    assert isinstance(node, ast.Call)
    arguments = [_value(argument, names) for argument in node.args]
    if isinstance(node.func, ast.Attribute):
        of = _value(node.func.value, names)
        return of.get(*arguments) if isinstance(of, Mapping) else (*arguments, None)[1]
    assert isinstance(node.func, ast.Name)
    return 0 if node.func.id == "len" and arguments == [None] else CALLS[node.func.id](*arguments)


def _both_or_either(node: ast.BoolOp, names: Mapping[str, Any]) -> Any:
    value = None
    for operand in node.values:
        value = _value(operand, names)
        if bool(value) != isinstance(node.op, ast.And):
            return value
    return value


def _compared(node: ast.Compare, names: Mapping[str, Any]) -> bool:
    left = _value(node.left, names)
    for how, other in zip(node.ops, node.comparators, strict=True):
        right = _value(other, names)
        missing = (left is None or right is None) and not isinstance(
            how, ast.Eq | ast.NotEq | ast.Is | ast.IsNot
        )
        if isinstance(how, ast.In | ast.NotIn):
            missing = right is None
        if missing:
            return isinstance(how, ast.NotIn)
        if not COMPARE[type(how)](left, right):
            return False
        left = right
    return True


def _member(of: Any, name: Any) -> Any:
    """A member of plain data; None where there is none. Attributes of Python objects cannot be reached."""
    if isinstance(of, Mapping):
        return of.get(name)
    if isinstance(of, list) and isinstance(name, int) and not isinstance(name, bool):
        return of[name] if -len(of) <= name < len(of) else None
    return None
