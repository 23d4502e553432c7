"""Protobuf's wire format, for the parts of a model that come by the thousand: nodes, typed values, initialisers.

A field is its number and kind in one byte, and, where it holds a text or a message, the length of what follows. Objects
made one by one cost several times as much as bytes that protobuf reads at once. Bytes are written as texts here, a
letter of Latin-1 for each: Python puts texts together faster. ``packed`` makes them bytes in the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_LETTERS = tuple([chr(code) for code in range(128)])

# Fields of ModelProto, GraphProto, NodeProto and AttributeProto that hold messages. Source: onnx.proto.
GRAPH = 7
NODE, INITIALIZER, INPUT, VALUE_INFO = 1, 5, 11, 13
ATTRIBUTE = 5
ATTRIBUTE_GRAPH = 6


def letters(content: bytes) -> str:
    """Return bytes as letters."""
    return content.decode("latin-1")


def packed(content: str) -> bytes:
    """Return letters as the bytes that they stand for."""
    return content.encode("latin-1")


def varint(number: int) -> str:
    """Return a number that is not negative, seven bits to a byte, the lowest first."""
    if number < 128:
        return _LETTERS[number]
    out = ""
    while number > 127:
        out += chr(number & 127 | 128)
        number >>= 7
    return out + _LETTERS[number]


def field(number: int, content: str) -> str:
    """Return a field that holds a text, bytes or a message."""
    return f"{varint(number << 3 | 2)}{varint(len(content))}{content}"


def text(name: str) -> str:
    """Return a text with its length in front."""
    content = name if name.isascii() else letters(name.encode())
    size = len(content)
    return f"{_LETTERS[size] if size < 128 else varint(size)}{content}"


def tail(op: str, domain: str, attributes: Iterable[str]) -> str:
    """Return the fields of a node that calls share: operator, attributes (messages), domain."""
    fields = [f"\x22{text(op)}", *[field(ATTRIBUTE, content) for content in attributes]]
    if domain:
        fields.append(f"\x3a{text(domain)}")
    return "".join(fields)


def identity(name: str, source: str, target: str) -> str:
    """Return the fields of an Identity."""
    return f"\x0a{text(source)}\x12{text(target)}\x1a{text(name)}{tail('Identity', '', ())}"


def value(number: int, name: str, kind: str) -> str:
    """Return a typed value as that field of its graph; ``kind`` is its own ``type`` field."""
    called = text(name)
    size = len(called) + len(kind) + 1
    return f"{_LETTERS[number << 3 | 2]}{_LETTERS[size] if size < 128 else varint(size)}\x0a{called}{kind}"


def tensor(name: str, kind: int, shape: tuple[int, ...], raw: bytes | memoryview) -> bytes:
    """Return an initialiser as a field of its graph: 1 a size, 2 the element type, 8 the name, 9 the bytes."""
    head = packed(f"{_typed(kind, shape)}\x42{text(name)}\x4a{varint(len(raw))}")
    return b"".join((packed(f"\x2a{varint(len(head) + len(raw))}"), head, raw))


@lru_cache(maxsize=1024)
def _typed(kind: int, shape: tuple[int, ...]) -> str:
    sizes = "".join([f"\x08{varint(size)}" for size in shape])
    return f"{sizes}\x10{varint(kind)}"


__all__ = [
    "ATTRIBUTE",
    "ATTRIBUTE_GRAPH",
    "GRAPH",
    "INITIALIZER",
    "INPUT",
    "NODE",
    "VALUE_INFO",
    "field",
    "identity",
    "letters",
    "packed",
    "tail",
    "tensor",
    "text",
    "value",
    "varint",
]
