"""A model as people look at it: its calls by scope, with shapes, weights, the user's lines and what each call costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lazygraph import dims
from lazygraph.dims import Dim, Size
from lazygraph.errors import OperandError, ShapeError
from lazygraph.export.cost import Cost, cost_of
from lazygraph.export.loading import load
from lazygraph.export.manifest import FILE, MODEL, Manifest, read_manifest
from lazygraph.export.program import Outputs, Program, collect
from lazygraph.export.source_lines import scope_of
from lazygraph.origins import Node, shape_text
from lazygraph.tensor import Tensor


@dataclass(frozen=True)
class Call:
    """One operator call.

    Attributes:
        name: Its name in the file.
        op: The operator, with its domain where that is not ai.onnx.
        scope: The parts of the scope that it stands in.
        inputs: Names of what it reads, ``""`` for what is left out.
        outputs: Names of what it gives.
        attributes: Name and text of each attribute.
        line: The user's line, ``""`` where it is not known.
        parameters: Numbers of the weights that it is the first to read.
        cost: What it costs.
        branch: The bodies around it, outermost first: call and attribute.
    """

    name: str
    op: str
    scope: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    line: str
    parameters: int
    cost: Cost
    branch: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Weight:
    """A weight: element type, sizes and bytes."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Outline:
    """A model to be looked at.

    Attributes:
        title: What it is called.
        calls: Every call, in program order, those of bodies too.
        types: By value name, element type and shape as text.
        inputs: Names of what is fed.
        outputs: Names of what comes out.
        weights: By name.
        sizes: The number of every size that shapes name.
        assumed: The named sizes that nobody gave a number; they are 1.
        manifest: Of an export folder.
        notes: What was not as it should be in the file.
        skipped: The branches that are not counted: call and attribute.
    """

    title: str
    calls: tuple[Call, ...]
    types: dict[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: dict[str, Weight]
    sizes: dict[str, int]
    assumed: tuple[str, ...] = ()
    manifest: Manifest | None = None
    notes: tuple[str, ...] = ()
    skipped: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    @property
    def parameters(self) -> int:
        """Numbers in the weights."""
        return sum(call.parameters for call in self.calls)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(weight.nbytes for weight in self.weights.values())

    def number(self, size: Size | None) -> int:
        """Return the number of a size; 0 where it is not known."""
        return 0 if size is None else dims.evaluate(size, self.sizes)

    def flops(self, call: Call) -> int:
        """Return the operations of a call; 0 in a branch that is not counted."""
        return 0 if self._is_skipped(call) else self.number(call.cost.flops)

    def moved(self, call: Call) -> int:
        """Return the bytes that a call reads and writes; 0 in a branch that is not counted."""
        if self._is_skipped(call):
            return 0
        return self.number(call.cost.read) + self.number(call.cost.written)

    def unknown(self) -> list[str]:
        """Return the operators of calls whose operations or bytes are not known."""
        costs = ((call.op, call.cost) for call in self.calls)
        return sorted({op for op, cost in costs if None in (cost.flops, cost.read, cost.written)})

    def _is_skipped(self, call: Call) -> bool:
        return any(branch in self.skipped for branch in call.branch)


def outline_of_file(source: str | Path, sizes: Mapping[str, int] | None = None) -> Outline:
    """Return the outline of an ``.onnx`` file or of an export folder.

    Sizes that nobody gives are 1; of a decoder, a step of one token (``n``) after 512 (``past_len``).

    Raises:
        LoadError: It is no model.
        ExportError: It is a folder without an export in it.
        OperandError: The model has no size of a name that is given.
    """
    path = Path(source)
    given = dict(sizes or {})
    manifest = read_manifest(path) if path.is_dir() else None
    loaded = load(path / MODEL if manifest is not None else path)
    told: dict[str, int] = {}
    if manifest is not None:
        n = given.setdefault("n", 1)
        past = given.setdefault("past_len", max(0, min(512, manifest.max_seq_len - n)))
        given.setdefault("logits_from", max(0, n - 1))
        told = {"rows": manifest.max_seq_len if manifest.lowering == "buffer" else past + n}
    title = path.resolve().name if path.name in ("", ".", "..") else path.name
    program = collect(loaded.outputs)
    return _outline(program, title, {**told, **given}, loaded.equal_sizes, manifest, loaded.notes)


def outline_of(outputs: Outputs, title: str = "graph", sizes: Mapping[str, int] | None = None) -> Outline:
    """Return the outline of tensors, with the lines that made them.

    Raises:
        LazyGraphError: As for ``lazygraph.to_onnx``.
    """
    return _outline(collect(outputs), title, dict(sizes or {}), [], None, ())


def is_export(path: str | Path) -> bool:
    """Return whether a path is an export folder."""
    return (Path(path) / FILE).is_file()


def _outline(
    program: Program,
    title: str,
    given: dict[str, int],
    equal: list[tuple[str, str]],
    manifest: Manifest | None,
    notes: tuple[str, ...],
) -> Outline:
    weights = {w.name: Weight(w.dtype.name, tuple(w.shape), w.nbytes) for w in program.weights}
    types: dict[str, str] = {}
    for tensor in program.inputs.values():
        types[program.name_of(tensor)] = _type(tensor)
    for name, weight in weights.items():
        types[name] = f"{weight.dtype} {shape_text(weight.shape)}"
    copied = set(manifest.copied) if manifest is not None else set()
    in_place = {slot.source for slot in manifest.memory} - copied if manifest is not None else set()
    calls = tuple(_calls(program, weights, types, in_place))
    numbers, assumed = _numbers(program, given, equal, manifest)
    made = Outline(
        title,
        calls,
        types,
        tuple(program.inputs),
        tuple(program.outputs),
        weights,
        numbers,
        assumed,
        manifest,
        notes,
    )
    return replace(made, skipped=frozenset(_dearer(made)))


def _calls(
    program: Program, weights: Mapping[str, Weight], types: dict[str, str], in_place: set[str]
) -> Iterator[Call]:
    names = dict(zip(program.nodes, program.node_names, strict=True))
    seen: set[str] = set()
    scopes: dict[Node, tuple[str, ...]] = {}
    for node in reversed(program.nodes):  # what holds a body comes after what is in it
        scopes[node] = _scope(program, names, node, scopes)
    for node in program.nodes:
        inputs = tuple("" if tensor is None else program.name_of(tensor) for tensor in node.inputs)
        outputs = tuple(program.names[node])
        for tensor, name in zip(node.outputs, outputs, strict=False):
            if name:
                types[name] = _type(tensor)
        for body in node.bodies:
            for tensor in body.inputs:
                types[program.name_of(tensor)] = _type(tensor)
        fresh = [name for name in dict.fromkeys(inputs) if name in weights and name not in seen]
        seen.update(fresh)
        cost = cost_of(node, bool(inputs) and inputs[0] in in_place)
        yield Call(
            names[node],
            f"{node.domain}.{node.op}" if node.domain else node.op,
            scopes[node],
            inputs,
            outputs,
            tuple((name, _attribute(value)) for name, value in sorted(node.attrs.items())),
            _line(node),
            sum(_numbers_in(weights[name]) for name in fresh),
            cost,
            _branch(program, names, node),
        )


def _scope(
    program: Program, names: Mapping[Node, str], node: Node, scopes: Mapping[Node, tuple[str, ...]]
) -> tuple[str, ...]:
    place = program.places.get(node)
    if place is not None:
        around = scopes.get(place.node) or _scope(program, names, place.node, scopes)
        return (*around, f"{names[place.node].split('/')[-1]} {place.body.name}")
    told = scope_of(node.kept.metadata) if node.kept is not None else ()
    return told or tuple(part for part in names[node].split("/")[:-1] if part)


def _branch(program: Program, names: Mapping[Node, str], node: Node) -> tuple[tuple[str, str], ...]:
    found = []
    place = program.places.get(node)
    while place is not None:
        found.append((names[place.node], place.body.name))
        place = place.around
    return tuple(reversed(found))


def _dearer(outline: Outline) -> set[tuple[str, str]]:
    """Return the branches of each If that are not counted: all but the cheapest, for branches are there to save."""
    work: dict[str, dict[str, int]] = {}
    for call in outline.calls:
        for name, body in call.branch:
            if body in ("then_branch", "else_branch"):
                bodies = work.setdefault(name, {"then_branch": 0, "else_branch": 0})
                bodies[body] += outline.number(call.cost.flops)
    found = set()
    for name, bodies in work.items():
        cheapest = min(bodies, key=bodies.__getitem__)
        found |= {(name, body) for body in bodies if body != cheapest}
    return found


def _numbers(
    program: Program, given: dict[str, int], equal: list[tuple[str, str]], manifest: Manifest | None
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the number of every name in shapes; first what is given, then what met something known, then 1."""
    found = {atom.text: atom.kind for tensor in _tensors(program) for atom in _named(tensor)}
    extra = {"past_len", "logits_from"} if manifest is not None else set()
    for name in given:
        if name not in found and name not in extra and name not in ("n", "rows"):
            raise OperandError(
                f"no size is called {name!r}",
                op="show",
                expected="one of " + (", ".join(sorted(n for n, kind in found.items() if kind == "size")) or "none"),
            )
    numbers = dict(given)
    pairs = [(dims.parse(a), dims.parse(b)) for a, b in equal if _readable(a) and _readable(b)]
    for _ in range(4):
        for pair in pairs:
            for a, b in (pair, pair[::-1]):
                name = str(a)
                if name in found and name not in numbers and all(part in numbers for part in dims.names(b)):
                    numbers[name] = dims.evaluate(b, numbers)
    assumed = []
    for name in found:
        if name not in numbers:
            numbers[name] = 1
            assumed.append(name)
    return numbers, tuple(assumed)


def _readable(text: str) -> bool:
    try:
        dims.parse(text)
    except ShapeError:
        return False
    return True


def _named(tensor: Tensor) -> Iterator[dims.Atom]:
    waiting = [size for size in tensor.known_shape or () if isinstance(size, Dim)]
    while waiting:
        for atom in dims.atoms(waiting.pop()):
            if atom.kind in ("size", "unknown"):
                yield atom
            waiting += [arg for arg in atom.args if isinstance(arg, Dim)]


def _tensors(program: Program) -> Iterator[Tensor]:
    yield from program.inputs.values()
    for node in program.nodes:
        yield from node.outputs
        for body in node.bodies:
            yield from body.inputs


def _type(tensor: Tensor) -> str:
    if tensor.dtype.element is not None:
        return str(tensor.dtype)
    return f"{tensor.dtype} {'(unknown)' if tensor.known_shape is None else shape_text(tensor.known_shape)}"


def _line(node: Node) -> str:
    """Return the user's line: what the file says of it, or where the call was made."""
    at = node.at if node.kept is None else node.kept.at
    return "" if at is None else str(at)


def _numbers_in(weight: Weight) -> int:
    count = 1
    for size in weight.shape:
        count *= size
    return count


def _attribute(value: object) -> str:
    text = repr(value.decode(errors="replace") if isinstance(value, bytes) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


__all__ = ["Call", "Outline", "Weight", "is_export", "outline_of", "outline_of_file"]
