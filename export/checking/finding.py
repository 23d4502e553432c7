"""Findings and the rules that they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from lazygraph.where import Where

# error: a runtime or onnx refuses it, or the numbers are wrong. warning: some runtime refuses it, or it is not what
# the file says. note: nothing is wrong, and somebody may want to know.
Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Rule(NamedTuple):
    """What is asked of a model.

    Attributes:
        severity: How bad it is when it is broken.
        text: What must be true, in one sentence.
    """

    severity: Severity
    text: str


RULES: dict[str, Rule] = {
    "ir-version": Rule("error", "The IR version is one that the installed onnx knows."),
    "opset-missing": Rule("error", "Every domain whose operators are called is imported."),
    "opset-twice": Rule("error", "Every domain is imported once."),
    "opset-unknown": Rule("error", "The opset is one that the installed onnx knows."),
    "opset-too-new": Rule("error", "The model asks for no newer opset than was allowed."),
    "operator-unknown": Rule("error", "Every operator exists in the opset of its domain."),
    "operator-custom": Rule(
        "note", "Operators of a domain that onnx and onnxruntime lack need a library of their own."
    ),
    "operator-deprecated": Rule("error", "No operator is called that its opset has taken out of use."),
    "call-signature": Rule("error", "Every call has the operands, results and attributes that its operator asks for."),
    "name-missing": Rule("error", "Everything that is read is made, before it is read."),
    "name-order": Rule("error", "Nodes stand in an order in which they can run."),
    "name-twice": Rule("error", "A value's name is made once in its graph."),
    "name-node-twice": Rule("error", "Two nodes of one graph have different names; onnxruntime refuses equal ones."),
    "name-initializer-twice": Rule("error", "Two initialisers have different names; onnxruntime takes the last one."),
    "name-hides": Rule("warning", "An inner graph does not give a new meaning to a name from outside."),
    "node-unused": Rule("note", "What a node makes is read."),
    "weight-unused": Rule("note", "A weight is read."),
    "weight-broken": Rule("error", "A weight has as many elements as its shape, of a known type."),
    "data-escapes": Rule("error", "Weights files lie in the model's own folder."),
    "data-missing": Rule("error", "Every weights file is there."),
    "data-short": Rule("error", "A weights file is as long as the model says."),
    "data-length": Rule("error", "Offset and length of a weight fit its type and shape."),
    "data-overlap": Rule("warning", "Two weights in a file are the same bytes or share none."),
    "data-link": Rule("error", "A weights file is no link to a place outside the model's folder."),
    "data-linked-twice": Rule("warning", "A weights file has one name; onnx refuses to read one with several."),
    "onnx-checker": Rule("error", "onnx's own checker takes the model."),
    "shape-inference": Rule("error", "onnx's strict shape inference takes the model."),
    "shape-rule": Rule("error", "Every call keeps the rule of its operator as lazygraph knows it."),
    "shape-doubt": Rule("warning", "lazygraph's rules and onnx's agree on every call."),
    "sizes-meet": Rule("note", "Sizes of different names do not meet; where they do they must be equal at run time."),
    "not-read": Rule("warning", "lazygraph can read the model; what it cannot read it cannot check in depth."),
    "provider-kernel": Rule("error", "The provider has a kernel for every call."),
    "in-place": Rule("error", "A cache's output may have its input's memory: nothing reads old rows after the write."),
    "in-place-possible": Rule("note", "A cache that is kept apart could share memory with its output."),
    "cache-pair": Rule("warning", "A past has its present, of the same type and with the sizes of the past."),
    "manifest-broken": Rule("error", "The manifest can be read."),
    "manifest-model": Rule("error", "The manifest describes the model's inputs and outputs."),
    "manifest-fingerprint": Rule("error", "The model is the file that the manifest was written for."),
    "manifest-memory": Rule(
        "error", "The manifest names as unsafe what must not be updated in place, and nothing else."
    ),
}


@dataclass(frozen=True)
class Finding:
    """One thing that breaks a rule.

    Attributes:
        rule: The rule's name.
        message: What was found, in one sentence.
        node: The node it is about, or a value, a weight or a file; empty for the whole model.
        at: The line that made the node, where the file tells it.
    """

    rule: str
    message: str
    node: str = ""
    at: Where | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return RULES[self.rule].severity


__all__ = ["RULES", "SEVERITIES", "Finding", "Rule", "Severity"]
