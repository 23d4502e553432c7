"""Which opset and IR version a program needs: the lowest that mean the same as what was written.

An operator call is written against its newest schema. An older schema serves as well when it accepts the call
(operands, attributes, element types) and no version between the two changed what such a call means. Most changes show
in the schemas; those that do not stand in ``_CHANGES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lazygraph.dtypes import DType, as_dtype, untold
from lazygraph.errors import ExportError, UnsupportedError
from lazygraph.tensor import Node, Tensor, describe

if TYPE_CHECKING:
    from onnx.defs import OpSchema

LOWEST = 13
# Later than any version.
_ANY = 2**31 - 1

# Versions of an operator that give some calls another meaning than the version before, which no attribute default,
# operand count or type list shows. The predicate says which calls (attributes, element types of the operands).
# Read off the schemas of onnx 1.23 from opset 13 on; a test goes through every new version that onnx brings.
_FLOATS = ("float16", "float32", "float64", "bfloat16")
_Change = Callable[[dict[str, Any], Sequence[str]], bool]
_CHANGES: dict[tuple[str, int], _Change] = {
    # coordinate_transformation_mode came with half_pixel as default; until then the half pixel was left out.
    ("RoiAlign", 16): lambda attrs, types: True,
    # max and min reductions came later than the attribute that names them.
    ("ScatterND", 18): lambda attrs, types: attrs.get("reduction", "none") in ("max", "min"),
    ("ScatterElements", 18): lambda attrs, types: attrs.get("reduction", "none") in ("max", "min"),
    ("Pad", 19): lambda attrs, types: attrs.get("mode") == "wrap",
    # Output sizes for scales, and half_pixel_symmetric, were put in words in 19 only.
    ("Resize", 19): lambda attrs, types: True,
    # With ceil_mode, windows that would start in the padding on the right are left out.
    ("AveragePool", 19): lambda attrs, types: bool(attrs.get("ceil_mode")),
    ("AveragePool", 22): lambda attrs, types: bool(attrs.get("ceil_mode")),
    ("MaxPool", 22): lambda attrs, types: bool(attrs.get("ceil_mode")),
    ("LpPool", 22): lambda attrs, types: bool(attrs.get("ceil_mode")),
    # bilinear became linear and bicubic cubic; five axes are new.
    ("GridSample", 20): lambda attrs, types: True,
    # The axis was an attribute that counted 1; it is an operand that counts -2.
    ("DFT", 20): lambda attrs, types: True,
    # scale and bias were per group and are per channel.
    ("GroupNormalization", 21): lambda attrs, types: True,
    # The floored remainder of floating-point numbers.
    ("Mod", 28): lambda attrs, types: not attrs.get("fmod") and types[0] in _FLOATS,
}
_CHANGED = {op for op, _ in _CHANGES}

# The IR version that brought each element type. Source: onnx.proto, enum Version.
_IR_OF_DTYPE = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 9),
    **dict.fromkeys(("int4", "uint4"), 10),
    "float4_e2m1fn": 11,
    "float8_e8m0fnu": 12,
    **dict.fromkeys(("int2", "uint2"), 13),
}


def changed_between(calls: Iterable[Node], first: int, second: int) -> Node | None:
    """Return a call that means something else in one of two opsets than in the other, or None where none does."""
    low, high = sorted((first, second))
    for node in calls:
        types = ["" if tensor is None else tensor.dtype.name for tensor in node.inputs]
        for (op, version), changed in _CHANGES.items():
            if op == node.op and node.domain == "" and low < version <= high and changed(node.attrs, types):
                return node
    return None


def distinct_calls(nodes: Iterable[Node]) -> list[Node]:
    """Return one of each kind of call: same operator, attributes, operand and result types."""
    calls: dict[object, Node] = {}
    for node in nodes:
        attrs, made = node.attrs, node.made
        types = [None if tensor is None else tensor.dtype.onnx for tensor in node.inputs]
        version = None if node.kept is None else node.kept.opset
        if not attrs and version is None and isinstance(made, Tensor):
            calls.setdefault((node.op, node.domain, made.dtype.onnx, *types), node)
            continue
        key = (
            node.op,
            node.domain,
            version,
            tuple(attrs),
            str(attrs) if node.op in _CHANGED else "",
            tuple(types),
            tuple([tensor.dtype.onnx for tensor in node.outputs]),
        )
        calls.setdefault(key, node)
    return list(calls.values())


def opsets(
    calls: Sequence[Node], fixed: int | None, wanted: int | None, of_file: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return the version of every domain that the calls use, ``""`` first.

    Args:
        calls: The operator calls, one of each kind.
        fixed: The opset whose signatures the graph was written against, or None.
        wanted: An opset asked for at export, at least what the nodes need; or None for the lowest.
        of_file: The version of every domain that the graph's file was written for.

    Raises:
        UnsupportedError: A node needs a later opset than is fixed or asked for, or an earlier one.
        ExportError: onnx knows no version of an operator that accepts the call.
    """
    if wanted is not None and fixed is not None and wanted != fixed:
        raise UnsupportedError(
            f"opset {wanted} asked of a graph written for opset {fixed}", op="export", expected=f"opset {fixed} or none"
        )
    chosen = fixed if fixed is not None else wanted
    require_in_range(wanted)
    of_file = {domain: version for domain, version in (of_file or {}).items() if domain}

    needs: dict[str, int] = {"": LOWEST}
    ends: dict[str, tuple[int, Node]] = {}
    for node in calls:
        here = chosen if node.domain == "" else of_file.get(node.domain)
        own = None if node.kept is None else node.kept.opset
        if own is not None:  # it came from a file of another version
            low, high = _range_of_file(node, own)
        else:
            low, high = _range(node, here, fixed is not None or node.domain != "")
        if low > needs.get(node.domain, 0):
            if node.domain == "" and chosen is not None and low > chosen:
                _refuse(node, low, chosen)
            needs[node.domain] = low
        if high is not None and (node.domain not in ends or high < ends[node.domain][0]):
            ends[node.domain] = high, node

    if chosen is not None:
        needs[""] = chosen
    needs.update({domain: version for domain, version in of_file.items() if domain in needs})
    for domain, (high, node) in ends.items():
        if needs[domain] > high:
            from_file = node.kept is not None and node.kept.opset is not None
            raise UnsupportedError(
                f"its signature is that of opset {high} or earlier, and the graph needs {needs[domain]}",
                op=node.op,
                at=node.at,
                hint="lg.load(path, opset=...) converts the model that it comes from"
                if from_file
                else "write it with the newer signature, or fix the opset with lg.input(..., opset=...)",
            )
    return {"": needs.pop(""), **dict(sorted(needs.items()))}


def ir_version(domains: Mapping[str, int], dtypes: set[DType]) -> int:
    """Return the lowest IR version that the opsets and element types need."""
    from onnx import helper

    table = helper.OP_SET_ID_VERSION_MAP
    needed = [table.get((domain or "ai.onnx", version), 0) for domain, version in domains.items()]
    return max([7, *needed, *(_IR_OF_DTYPE.get(dtype.name, 0) for dtype in dtypes)])


def newest_opset() -> int:
    """Return the newest ai.onnx opset that the installed onnx knows."""
    from onnx import defs

    return int(defs.onnx_opset_version())


def schema_at(op: str, domain: str, opset: int) -> OpSchema | None:
    """Return the schema of an operator that holds in an opset, or None where onnx has none."""
    return next((schema for schema in versions_of(op, domain) if schema.since_version <= opset), None)


@lru_cache(maxsize=4096)
def versions_of(op: str, domain: str) -> tuple[OpSchema, ...]:
    """Return all schemas of an operator, the newest first."""
    from onnx import defs

    found: list[OpSchema] = []
    below = _ANY
    while below and defs.has(op, below, domain):
        found.append(defs.get_schema(op, below, domain))
        below = found[-1].since_version - 1
    return tuple(found)


def _range(node: Node, chosen: int | None, written_for: bool) -> tuple[int, int | None]:
    """Return the lowest version that serves a call, and the highest where a later one does not."""
    schemas = versions_of(node.op, node.domain)
    if not schemas:
        return 1, None  # a domain that onnx knows nothing of: its first version
    current = schema_at(node.op, node.domain, chosen) if written_for and chosen is not None else None
    if current is not None and not refusal(current, node):
        newer = [schema.since_version for schema in schemas if schema.since_version > current.since_version]
        low, _ = _lowest(schemas[schemas.index(current) :], node)
        return low, min(newer) - 1 if newer else None

    for place, schema in enumerate(schemas):
        if not refusal(schema, node):
            low, _ = _lowest(schemas[place:], node)
            return low, schemas[place - 1].since_version - 1 if place else None
    raise ExportError(
        f"no version of the operator accepts this call: {refusal(schemas[0], node)}",
        op=node.op,
        operands={f"operand {i}": describe(t) for i, t in enumerate(node.inputs) if t is not None},
        expected=f"a call that ai.onnx::{node.op}-{schemas[0].since_version} accepts",
        at=node.at,
    )


def _range_of_file(node: Node, version: int) -> tuple[int, int | None]:
    """Return the lowest and the highest version in which a call means what it means in its file's version."""
    schemas = versions_of(node.op, node.domain)
    current = schema_at(node.op, node.domain, version)
    if current is None:
        return version, version  # nobody here knows what changed
    place = schemas.index(current)
    low, _ = _lowest(schemas[place:], node)
    while place and _same_meaning(schemas[place], schemas[place - 1], node):
        place -= 1
    return low, schemas[place - 1].since_version - 1 if place else None


def _lowest(schemas: Sequence[OpSchema], node: Node) -> tuple[int, OpSchema]:
    """Return how far down from the first schema the meaning of the call is the same."""
    kept = schemas[0]
    for older in schemas[1:]:
        if refusal(older, node) or not _same_meaning(older, kept, node):
            break
        kept = older
        if node.domain == "" and kept.since_version <= LOWEST:
            break
    return kept.since_version, kept


def _same_meaning(older: OpSchema, newer: OpSchema, node: Node) -> bool:
    """Return whether a call that the older schema accepts is accepted by the next one, and means the same there."""
    changed = _CHANGES.get((node.op, newer.since_version))
    if changed is not None and node.domain == "":
        types = ["" if tensor is None else tensor.dtype.name for tensor in node.inputs]
        if changed(node.attrs, types):
            return False
    return not refusal(newer, node) and not _default_differs(older, newer, node)


def _default_differs(older: OpSchema, newer: OpSchema, node: Node) -> bool:
    for name, attr in older.attributes.items():
        if name in node.attrs:
            continue
        now = newer.attributes.get(name)
        after = b"" if now is None else now.default_value.SerializeToString()
        if attr.default_value.SerializeToString() != after:
            return True
    return False


def refusal(schema: OpSchema, node: Node) -> str:
    """Return why a schema does not accept a call, ``""`` when it does."""
    if schema.deprecated:
        return "the operator is deprecated"
    given = {*node.attrs, *(body.name for body in node.bodies)}
    for name in given:
        if name not in schema.attributes:
            return f"it has no attribute {name}"
    for name, attr in schema.attributes.items():
        if attr.required and name not in given:
            return f"attribute {name} is missing"
    inputs = _trimmed(node.inputs)
    if not schema.min_input <= len(inputs) <= schema.max_input:
        return f"{len(inputs)} operands, where it takes {schema.min_input} to {schema.max_input}"
    outputs = node.outputs
    if not schema.min_output <= len(outputs) <= schema.max_output:
        return f"{len(outputs)} outputs, where it gives {schema.min_output} to {schema.max_output}"
    return _types_refused(schema, inputs, outputs)


def _types_refused(schema: OpSchema, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> str:
    allowed = _allowed(schema)
    bound: dict[str, str] = {}
    for formals, tensors in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for i, tensor in enumerate(tensors):
            if tensor is None or tensor.dtype is untold:
                continue
            formal = formals[min(i, len(formals) - 1)]
            given = type_text(tensor.dtype)
            variable = formal.type_str
            if given not in allowed.get(variable, (variable,)):
                return f"{formal.name} cannot be {tensor.dtype}"
            if variable in allowed and formal.is_homogeneous and bound.setdefault(variable, given) != given:
                return f"{formal.name} is {tensor.dtype}, another type than the operands before it"
    return ""


@lru_cache(maxsize=4096)
def _allowed_of(op: str, domain: str, version: int) -> dict[str, frozenset[str]]:
    schema = next(s for s in versions_of(op, domain) if s.since_version == version)
    return {
        limit.type_param_str: frozenset(map(_as_we_write, limit.allowed_type_strs)) for limit in schema.type_constraints
    }


def _as_we_write(kind: str) -> str:
    """Return a type's text; schemas write maps in two ways, ``map(int64, float)`` and ``map(int64,tensor(float))``."""
    if "map(" not in kind:
        return kind
    from lazygraph.ops.signature import dtype_name

    return type_text(as_dtype(dtype_name(kind)))


def _allowed(schema: OpSchema) -> dict[str, frozenset[str]]:
    return _allowed_of(schema.name, schema.domain, schema.since_version)


# onnx's spelling of element types in schemas, where it is not ours.
_SPELLING = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}


def type_text(dtype: DType) -> str:
    """Return how schemas write a tensor type: ``tensor(float)``."""
    if dtype.element is not None and dtype.key is not None:
        return f"map({_SPELLING.get(dtype.key.name, dtype.key.name)},{type_text(dtype.element)})"
    if dtype.element is not None:
        return f"{'seq' if dtype.kind == 'q' else 'optional'}({type_text(dtype.element)})"
    return f"tensor({_SPELLING.get(dtype.name, dtype.name)})"


def _trimmed(inputs: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    end = len(inputs)
    while end and inputs[end - 1] is None:
        end -= 1
    return inputs[:end]


def require_in_range(opset: int | None) -> None:
    """Require an opset that lazygraph writes.

    Raises:
        UnsupportedError: It is older, or newer than what onnx knows here.
    """
    if opset is None:
        return
    if not LOWEST <= opset <= newest_opset():
        raise UnsupportedError(
            f"opset {opset}", op="export", expected=f"opset {LOWEST} to {newest_opset()}, the newest that is known here"
        )


def _refuse(node: Node, needed: int, chosen: int) -> None:
    raise UnsupportedError(
        f"opset {needed} is needed, and the graph's is {chosen}",
        op=node.op,
        operands={f"operand {i}": describe(t) for i, t in enumerate(node.inputs) if t is not None},
        expected=f"opset {needed} or later",
        at=node.at,
        needed=needed,
    )


__all__ = [
    "LOWEST",
    "changed_between",
    "distinct_calls",
    "ir_version",
    "newest_opset",
    "opsets",
    "refusal",
    "require_in_range",
    "schema_at",
    "type_text",
    "versions_of",
]
