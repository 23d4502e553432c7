"""onnxscript's functions as calls: ``call`` gives tensors of what was written in another language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lazygraph.dims import Dim
from lazygraph.dims import size as named
from lazygraph.errors import OperandError
from lazygraph.export.converting import require_onnxscript
from lazygraph.export.loading import load
from lazygraph.export.lower import write_type
from lazygraph.inlining import inline
from lazygraph.origins import describe, same_graph
from lazygraph.scopes import Call, calling, current_scope
from lazygraph.tensor import Shape, Tensor
from lazygraph.where import user_line

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto
    from onnxscript import OnnxFunction


def call(script: OnnxFunction[..., Any], *tensors: Tensor, **attributes: Any) -> Tensor | tuple[Tensor, ...]:
    """Return what a function of onnxscript gives: a tensor, or a tuple where it returns several.

    Its operators are checked by their rules for these very tensors, so that shapes and types of the results are known,
    and the call is written as one of a local function, as those of ``lazygraph.function`` are.

    Args:
        script: What ``@onnxscript.script()`` made.
        tensors: Its operands, one for each.
        attributes: Its attributes by name; those with a default may be left out.

    Raises:
        OperandError: No function of onnxscript, another number of operands, an attribute that it does not have, or one
            that is missing.
        ExportError: onnxscript is not installed.
        GraphMismatchError: The tensors are of different graphs.
        LazyGraphError: An operator in it refuses the tensors; the message names it.

    Spec: onnx.proto, FunctionProto.
    """
    require_onnxscript("call")
    from onnxscript import OnnxFunction

    if not isinstance(script, OnnxFunction):
        raise OperandError(
            f"{type(script).__name__} {getattr(script, '__name__', script)!r} is no function of onnxscript",
            op="call",
            expected="what @onnxscript.script() makes",
            hint="@lg.function makes one of a Python function on tensors",
        )
    same_graph("call", tensors)
    proto = script.to_function_proto()
    rows = {f"operand {i}": describe(tensor) for i, tensor in enumerate(tensors)}
    if len(tensors) != len(proto.input):
        raise OperandError(
            f"{len(tensors)} operands given to {proto.name}",
            op="call",
            operands=rows,
            expected=f"{len(proto.input)}: {', '.join(proto.input)}",
        )
    inner = [function.to_function_proto() for function in script.function_ir.get_called_functions().values()]
    model = _model(proto, inner, tensors, _attributes(proto, attributes, rows))
    scope = current_scope()
    with calling(Call(proto.name, proto.domain, str(scope), user_line(), scope.call)):
        found = inline(load(model), dict(zip(proto.input, tensors, strict=True)))
    results = tuple(found.values())
    return results[0] if len(results) == 1 else results


def _attributes(proto: FunctionProto, given: Mapping[str, Any], rows: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of the call, all that the function has no number of its own for."""
    defaults = {attribute.name for attribute in proto.attribute_proto}
    known = [*proto.attribute, *defaults]
    for name in given:
        if name not in known:
            raise OperandError(
                f"{proto.name} has no attribute {name}",
                op="call",
                operands=rows,
                expected=f"one of {', '.join(known)}" if known else "no attributes",
            )
    missing = [name for name in proto.attribute if name not in given]
    if missing:
        raise OperandError(
            f"attribute {missing[0]} of {proto.name} is missing", op="call", operands=rows, expected="it"
        )
    return dict(given)


def _model(
    proto: FunctionProto, inner: Sequence[FunctionProto], tensors: Sequence[Tensor], attributes: Mapping[str, Any]
) -> ModelProto:
    """Return a model that calls the function once, on inputs like the tensors; each size of theirs has one name."""
    from onnx import ModelProto

    model = ModelProto(ir_version=8)
    versions: dict[str, int] = {proto.domain: 1}
    for function in (proto, *inner):
        model.functions.append(function)
        for entry in function.opset_import:
            versions[entry.domain] = max(entry.version, versions.get(entry.domain, 1))
        versions.setdefault(function.domain, 1)
    for domain, version in versions.items():
        model.opset_import.add(domain=domain, version=version)
    model.graph.name = proto.name
    sizes: dict[Dim, str] = {}
    node = model.graph.node.add(op_type=proto.name, domain=proto.domain, name=proto.name)
    for name, tensor in zip(proto.input, tensors, strict=True):
        write_type(model.graph.input.add(name=name), tensor.dtype, _renamed(tensor.known_shape, sizes))
        node.input.append(name)
    for name in proto.output:
        called = name if name not in proto.input else f"{name}_"
        node.output.append(called)
        model.graph.output.add(name=called)
    _add_attributes(node, attributes)
    node.attribute.extend([default for default in proto.attribute_proto if default.name not in attributes])
    return model


def _renamed(shape: Shape | None, sizes: dict[Dim, str]) -> Shape | None:
    """Return a shape whose sizes are plain names, equal ones the same."""
    if shape is None:
        return None
    return tuple(s if isinstance(s, int) else named(sizes.setdefault(s, f"size_{len(sizes)}")) for s in shape)


def _add_attributes(node: NodeProto, attributes: Mapping[str, Any]) -> None:
    from onnx import helper

    for name, value in attributes.items():
        try:
            node.attribute.append(helper.make_attribute(name, value))
        except (TypeError, ValueError) as error:
            raise OperandError(
                f"attribute {name} is {value!r}",
                op="call",
                expected="an int, float, text, or a list of them",
            ) from error


__all__ = ["call"]
