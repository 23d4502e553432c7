"""onnx's own cases of one node each, written as ``lg.op`` calls: types, shapes, named sizes, results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lazygraph as lg
from lazygraph import dims
from tests.support import node_cases
from tests.support.node_case_table import DATA_DEPENDENT, NOT_WRITTEN, RUNS_WRONG
from tests.support.node_cases import Case

# Cases whose shapes are not known for all sizes: GatherND by indices of an unknown depth; Resize by a scale that is no
# short binary fraction, or that keeps the aspect of unknown sizes.
UNKNOWN_WITH_NAMES = {"GatherND": 2, "Resize": 14}
# Cases in which a number that was given a name is refused: it meets a number of the call's.
DEMANDS_A_NUMBER = 71
# What onnxruntime gets right where the system has what it needs.
ENVIRONMENT = {"StringNormalizer"}


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """All cases."""
    return node_cases.node_cases()


def written(cases: dict[str, Case]) -> Iterator[Case]:
    return (case for name, case in cases.items() if name not in NOT_WRITTEN)


def test_most_cases_are_looked_at(cases: dict[str, Case]) -> None:
    assert len(cases) >= 1400
    assert sum(map(node_cases.has_subgraph, cases.values())) >= 20  # written as Python functions
    assert sum(map(node_cases.holds_tensors, cases.values())) >= 10
    assert set(NOT_WRITTEN) <= set(cases)
    assert len({case.node.op_type for case in cases.values()}) > 180


def test_types_and_shapes_are_those_expected(cases: dict[str, Case]) -> None:
    faults = {}
    for case in written(cases):
        made = node_cases.build(case)
        found, _ = node_cases.shape_faults(case, made, strict=case.node.op_type not in DATA_DEPENDENT)
        if found:
            faults[case.name] = found
    assert faults == {}


def test_operands_that_are_not_known_leave_sizes_open_but_never_wrong(cases: dict[str, Case]) -> None:
    faults = {}
    for case in written(cases):
        found, _ = node_cases.shape_faults(case, node_cases.build(case, constants=False), strict=False)
        if found:
            faults[case.name] = found
    assert faults == {}


def test_shapes_with_named_sizes_are_those_expected_at_the_sizes_of_the_case(cases: dict[str, Case]) -> None:
    faults = {}
    unknown: dict[str, int] = {}
    demanding = 0
    for case in written(cases):
        numbers: set[int] = set()
        made = node_cases.build(case, symbolic=True, numbers=numbers)
        found, open_sizes = node_cases.shape_faults(case, made, strict=False)
        if found:
            faults[case.name] = found
        demanding += bool(numbers)
        if open_sizes and case.node.op_type not in DATA_DEPENDENT:
            unknown[case.node.op_type] = unknown.get(case.node.op_type, 0) + 1
    assert faults == {}
    assert unknown == UNKNOWN_WITH_NAMES
    assert demanding <= DEMANDS_A_NUMBER


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_what_is_not_written_is_refused_with_its_reason(cases: dict[str, Case], name: str) -> None:
    with pytest.raises((lg.UnsupportedError, lg.OperandError)):
        node_cases.build(cases[name])


@pytest.mark.parametrize("op", DATA_DEPENDENT)
def test_data_dependent_operators_leave_a_size_to_the_run(cases: dict[str, Case], op: str) -> None:
    of_op = [case for case in cases.values() if case.node.op_type == op]
    made = [tensor for case in of_op for tensor in node_cases.build(case) if tensor is not None]
    assert any(tensor.known_shape is None or any(map(dims.is_unknown, tensor.shape)) for tensor in made)


# ---- what they compute ----


def outcome(case: Case) -> str:
    """Return how the case's results differ, empty where they are right, ``refused`` where the CPU has no kernel."""
    try:
        results = node_cases.rebuilt(case)
    except lg.UnsupportedError:
        return "refused"
    except lg.ExportError as error:
        return f"fails: {error}"
    return node_cases.differences(case, results)


def runs_right(case: Case) -> bool:
    """Return whether onnxruntime gets onnx's own model of the case right."""
    try:
        return not node_cases.differences(case, node_cases.original(case))
    except lg.ExportError:
        return False


def held(cases: list[Case]) -> None:
    """Require right results wherever onnxruntime is right by itself, and that what is not refused runs."""
    wrong = {}
    excused: dict[str, bool] = {}
    for case in cases:
        found = outcome(case)
        if not found:
            continue
        if found != "refused" and case.node.op_type in RUNS_WRONG:
            excused[case.node.op_type] = True
        elif found != "refused":
            wrong[case.name] = found
        if runs_right(case):
            wrong[case.name] = f"onnxruntime is right, and lazygraph: {found}"
    assert wrong == {}


def test_one_case_of_every_operator_computes_what_is_expected(cases: dict[str, Case]) -> None:
    first: dict[str, Case] = {}
    for case in written(cases):
        first.setdefault(case.node.op_type, case)
    held(list(first.values()))


def test_every_case_with_a_part_of_a_program_computes_what_is_expected(cases: dict[str, Case]) -> None:
    held([case for case in written(cases) if node_cases.has_subgraph(case)])


@pytest.mark.slow
def test_every_case_computes_what_is_expected(cases: dict[str, Case]) -> None:
    held(list(written(cases)))


@pytest.mark.slow
def test_no_row_of_the_wrong_runs_is_stale(cases: dict[str, Case]) -> None:
    doubtful = [case for case in written(cases) if case.node.op_type in RUNS_WRONG]
    wrong = {case.node.op_type for case in doubtful if outcome(case) not in ("", "refused")}
    assert wrong | ENVIRONMENT == set(RUNS_WRONG)
