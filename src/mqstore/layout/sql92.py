"""SQL92 expressions over message properties, as RocketMQ's brokers filter by them.

What they mean, with three truth values and RocketMQ's own rules for missing properties, is told in
docs/format/properties.md. Only a property that is missing is null; a value is always text, and read as a number where
it meets one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mqstore.errors import UsageError

if TYPE_CHECKING:
    from lark import Lark, Token

Properties = Mapping[str, str]
Value = bool | int | float | str | None
Evaluate = Callable[[Properties], Value]

_GRAMMAR: Final = r"""
start: _or
_or: or_ | _and
or_: _and ("OR"i _and)+
_and: and_ | _equality
and_: _equality ("AND"i _equality)+
_equality: equal | different | is_null | is_not_null | _comparison
equal: _equality "=" _comparison
different: _equality "<>" _comparison
is_null: _equality "IS"i "NULL"i
is_not_null: _equality "IS"i "NOT"i "NULL"i
_comparison: less | at_most | greater | at_least | between | not_between | in_ | not_in | _unary
less: _comparison "<" _unary
at_most: _comparison "<=" _unary
greater: _comparison ">" _unary
at_least: _comparison ">=" _unary
between: _comparison "BETWEEN"i _unary "AND"i _unary
not_between: _comparison "NOT"i "BETWEEN"i _unary "AND"i _unary
in_: _comparison "IN"i "(" STRING ("," STRING)* ")"
not_in: _comparison "NOT"i "IN"i "(" STRING ("," STRING)* ")"
_unary: plus | minus | not_ | _primary
plus: "+" _unary
minus: "-" _unary
not_: "NOT"i _unary
_primary: string | integer | float | true | false | null | property | "(" _or ")"
string: STRING
integer: INTEGER
float: FLOAT
true: "TRUE"i
false: "FALSE"i
null: "NULL"i
property: NAME

STRING: /'(?:[^']|'')*'/
FLOAT.2: /(?:0|[1-9][0-9]*)\.[0-9]*(?:[eE][+-]?[0-9]+)?/
       | /\.[0-9]+(?:[eE][+-]?[0-9]+)?/
       | /(?:0|[1-9][0-9]*)[eE][+-]?[0-9]+/
INTEGER: /(?:0|[1-9][0-9]*)[lL]?(?![A-Za-z0-9_$.])/
NAME: /[a-z_$][a-z0-9_$]*/i
COMMENT: /--[^\n\r]*|\/\*(?:[^*]|\*(?!\/))*\*\//
%ignore COMMENT
%ignore /[ \t\r\n\f]+/
"""

_MOST_DIGITS: Final = 20
_MOST_CHARACTERS: Final = 65_536
_LONG: Final = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A compiled expression. Make one with :meth:`parse`.

    Attributes:
        text: the expression as it was given.
    """

    text: str
    _evaluate: Evaluate

    @classmethod
    def parse(cls, text: str) -> SqlExpression:
        """Compile an expression, for example ``"amount > 10 AND region IS NOT NULL"``.

        Raises UsageError, which says where, for text that is no expression or cannot be meant: a value instead of a
        condition, ``= NULL``, bounds the wrong way round, a comparison of something that is no number. RocketMQ
        ignores whatever follows the first complete condition; here that is an error.
        """
        if not isinstance(text, str):
            raise UsageError("an SQL92 expression is text", found=repr(text))
        if len(text) > _MOST_CHARACTERS:
            raise UsageError(
                "the SQL92 expression is too long", expected=f"at most {_MOST_CHARACTERS} characters", found=len(text)
            )
        return cls(text, _compile(text))

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties passes: the condition is true, not false and not unknown.

        A property that is no number where the expression needs one makes its message not pass.
        """
        try:
            return self._evaluate(properties) is True
        except _NoNumber:
            return False


def sql(text: str) -> SqlExpression:
    """Short for :meth:`SqlExpression.parse`, as in ``store.get("orders", where=mqstore.sql("amount > 10"))``."""
    return SqlExpression.parse(text)


class _NoNumber(Exception):
    """A property is not the number that the expression compares it with."""


@lru_cache(maxsize=1)
def _parser() -> Lark:
    import lark

    # The basic lexer: a key word is one wherever it stands, and never the name of a property.
    return lark.Lark(_GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=False)


@lru_cache(maxsize=100)
def _compile(text: str) -> Evaluate:
    import lark

    try:
        tree = _parser().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        column = getattr(error, "column", None)
        raise UsageError(
            "not an SQL92 expression",
            found=text,
            offset=column if isinstance(column, int) and column > 0 else None,
            hint="for example: amount > 10 AND region IN ('eu', 'us')",
        ) from None
    (top,) = tree.children
    _need_condition(top)
    try:
        evaluate = _value(top)
        evaluate({})
    except RecursionError:
        raise UsageError("the SQL92 expression is nested too deeply", found=f"{len(text)} characters") from None
    except _NoNumber:
        pass
    return evaluate


# -- from the tree to functions

_Node = Any
"""A tree or a token of the parser."""


def _kind(node: _Node) -> str:
    return str(node.data)


def _refuse(reason: str) -> NoReturn:
    raise UsageError(f"the SQL92 expression cannot be meant: {reason}")


def _need_condition(node: _Node) -> None:
    if _kind(node) in ("string", "integer", "float", "plus", "minus", "null"):
        _refuse("a value stands where a condition is needed")


def _is_condition(node: _Node) -> bool:
    return _kind(node) not in ("string", "integer", "float", "plus", "minus", "null", "property", "true", "false")


def _value(node: _Node) -> Evaluate:
    return _MAKERS[_kind(node)](node.children)


def _string(children: list[Token]) -> Evaluate:
    text = _unquoted(children[0])
    return lambda properties: text


def _unquoted(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


def _integer(children: list[Token]) -> Evaluate:
    digits = str(children[0]).rstrip("lL")
    number = int(digits) if len(digits) < _MOST_DIGITS else _LONG.stop
    if number not in _LONG:
        _refuse(f"{digits[:_MOST_DIGITS]} does not fit 64 bits")
    return lambda properties: number


def _float(children: list[Token]) -> Evaluate:
    number = float(str(children[0]))
    if number == float("inf"):
        _refuse(f"{children[0]} is no number that a double can hold")
    return lambda properties: number


def _property(children: list[Token]) -> Evaluate:
    name = str(children[0])
    return lambda properties: properties.get(name)


def _constant(value: Value) -> Callable[[list[_Node]], Evaluate]:
    return lambda children: lambda properties: value


def _plus(children: list[_Node]) -> Evaluate:
    return _value(children[0])


def _minus(children: list[_Node]) -> Evaluate:
    operand = _value(children[0])

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

    return evaluate


def _truth(node: _Node) -> Callable[[Properties], bool | None]:
    """The node as a condition. A bare property is unknown when missing, and otherwise false: text is no truth."""
    _need_condition(node)
    operand = _value(node)

    def evaluate(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else value is True

    return evaluate


def _not(children: list[_Node]) -> Evaluate:
    operand = _truth(children[0])

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _and(children: list[_Node]) -> Evaluate:
    operands = [_truth(child) for child in children]

    def evaluate(properties: Properties) -> Value:
        result: bool | None = True
        for operand in operands:
            value = operand(properties)
            if value is False:
                return False
            result = None if value is None else result
        return result

    return evaluate


def _or(children: list[_Node]) -> Evaluate:
    operands = [_truth(child) for child in children]

    def evaluate(properties: Properties) -> Value:
        result: bool | None = False
        for operand in operands:
            value = operand(properties)
            if value is True:
                return True
            result = None if value is None else result
        return result

    return evaluate


def _equal(children: list[_Node]) -> Evaluate:
    for child in children:
        if _is_condition(child):
            _refuse("a condition is compared with a value")
        if _kind(child) == "null":
            _refuse("= NULL; write IS NULL")
    left, right = map(_value, children)

    def evaluate(properties: Properties) -> Value:
        a, b = left(properties), right(properties)
        if a is None:
            return True if b is None else None
        return False if b is None else _same(a, b)

    return evaluate


def _different(children: list[_Node]) -> Evaluate:
    equal = _equal(children)

    def evaluate(properties: Properties) -> Value:
        value = equal(properties)
        return None if value is None else not value

    return evaluate


def _same(a: Value, b: Value) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return a == b
    if isinstance(a, bool) or isinstance(b, bool):
        return _as_truth(a) == _as_truth(b)
    return _as_number(a, b) == _as_number(b, a)


def _as_truth(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    raise _NoNumber


def _as_number(value: Value, other: Value) -> int | float:
    """``value`` as a number of the kind that ``other`` is; as a double when that is text too."""
    if not isinstance(value, str):
        assert isinstance(value, int | float)
        return value
    text = value.strip() if isinstance(other, float | str) else value
    try:
        if isinstance(other, int):
            if "_" in text or text != text.strip() or len(text) > _MOST_DIGITS:
                raise ValueError
            number = int(text)
            if number not in _LONG:
                raise ValueError
            return number
        if "_" in text or text.lower().lstrip("+-") in ("inf", "infinity", "nan"):
            raise ValueError
        return float(text)
    except ValueError:
        raise _NoNumber from None


def _is_null(wanted: bool) -> Callable[[list[_Node]], Evaluate]:
    def make(children: list[_Node]) -> Evaluate:
        operand = _value(children[0])
        return lambda properties: (operand(properties) is None) is wanted

    return make


def _in(wanted: bool) -> Callable[[list[_Node]], Evaluate]:
    def make(children: list[_Node]) -> Evaluate:
        if _kind(children[0]) != "property":
            _refuse("IN asks about a property")
        operand = _value(children[0])
        values = frozenset(_unquoted(token) for token in children[1:])

        def evaluate(properties: Properties) -> Value:
            value = operand(properties)
            return None if value is None else (value in values) is wanted

        return evaluate

    return make


def _need_number(node: _Node) -> None:
    if _kind(node) not in ("property", "integer", "float", "plus", "minus"):
        _refuse("only numbers and properties can be less or greater")


def _ordering(compare: Callable[[Any, Any], bool]) -> Callable[[list[_Node]], Evaluate]:
    def make(children: list[_Node]) -> Evaluate:
        for child in children:
            _need_number(child)
        left, right = map(_value, children)

        def evaluate(properties: Properties) -> Value:
            a, b = left(properties), right(properties)
            if a is None or b is None:
                return None
            return compare(_as_number(a, b), _as_number(b, a))

        return evaluate

    return make


def _constant_number(node: _Node) -> int | float | None:
    """The number that a bound is, when it is one."""
    kind = _kind(node)
    if kind not in ("integer", "float", "plus", "minus"):
        return None
    if kind in ("plus", "minus") and _constant_number(node.children[0]) is None:
        return None
    value = _value(node)({})
    return value if isinstance(value, int | float) else None


def _between(wanted: bool) -> Callable[[list[_Node]], Evaluate]:
    def make(children: list[_Node]) -> Evaluate:
        low, high = _constant_number(children[1]), _constant_number(children[2])
        if low is not None and high is not None and low > high:
            _refuse(f"BETWEEN {low} AND {high} is empty")
        at_least = _ordering(lambda a, b: a >= b)([children[0], children[1]])
        at_most = _ordering(lambda a, b: a <= b)([children[0], children[2]])

        def evaluate(properties: Properties) -> Value:
            a, b = at_least(properties), at_most(properties)
            if a is False or b is False:
                return not wanted
            return None if a is None or b is None else wanted

        return evaluate

    return make


_MAKERS: Final[Mapping[str, Callable[[list[Any]], Evaluate]]] = {
    "string": _string,
    "integer": _integer,
    "float": _float,
    "property": _property,
    "true": _constant(True),
    "false": _constant(False),
    "null": _constant(None),
    "plus": _plus,
    "minus": _minus,
    "not_": _not,
    "and_": _and,
    "or_": _or,
    "equal": _equal,
    "different": _different,
    "is_null": _is_null(True),
    "is_not_null": _is_null(False),
    "in_": _in(True),
    "not_in": _in(False),
    "less": _ordering(lambda a, b: a < b),
    "at_most": _ordering(lambda a, b: a <= b),
    "greater": _ordering(lambda a, b: a > b),
    "at_least": _ordering(lambda a, b: a >= b),
    "between": _between(True),
    "not_between": _between(False),
}
