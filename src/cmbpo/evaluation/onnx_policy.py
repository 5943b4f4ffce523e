"""A policy as an ONNX model: for other languages, and for the accelerators that robots have."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cmbpo.runs.errors import RunError
from cmbpo.runs.files import read_bytes

OPSET, IR_VERSION = 13, 7
"""Of 2020: every operator is there, and the runtimes that robots still have read it."""
PRODUCER = "cmbpo"


def require() -> None:
    """Refuse where the package that writes such models is missing."""
    try:
        import onnx
    except ImportError:
        raise RunError(
            'onnx is not installed: pip install "cmbpo[onnx]"; .npz and .h need nothing more'
        ) from None
    del onnx


def model(parts: Mapping[str, np.ndarray], facts: Mapping[str, str]) -> bytes:
    """The file: from rows `obs` to rows `action`, as `numpy_policy` has it, and what is known.

    Numbers that are not finite cannot be refused by a model: their actions mean nothing.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes = []

    def apply(operator: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        name = to or f"{operator.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    squashed = bool(parts["squashed"])
    x = apply("Div", apply("Sub", "obs", "mean"), "std")
    if parts["compresses"]:
        x = apply("Mul", apply("Sign", x), apply("Log", apply("Add", apply("Abs", x), "one")))
    for i in range(int(parts["layers"])):
        x = apply("Relu" if squashed else "Tanh", x) if i else x
        x = apply("Gemm", x, f"weight_{i}", f"bias_{i}", transB=1)
    x = apply("Tanh", x) if squashed else apply("Clip", x, "minus_one", "one")
    share = apply("Mul", apply("Add", x, "one"), "half")
    act = apply("Add", apply("Mul", share, "width"), "low")
    apply("Min", apply("Max", act, "low"), "high", to="action")

    numbers = {name: np.array(x) for name, x in (("one", 1.0), ("minus_one", -1.0), ("half", 0.5))}
    constants = {**parts, **numbers, "width": parts["high"] - parts["low"]}
    used = {name for node in nodes for name in node.input} & constants.keys()
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["batch", len(parts["mean"])])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", len(parts["low"])])],
        [numpy_helper.from_array(constants[n].astype(np.float32), n) for n in sorted(used)],
    )
    made = helper.make_model(
        graph,
        producer_name=PRODUCER,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(made, dict(facts))
    return made.SerializeToString(deterministic=True)


def is_ours(path: Path) -> bool:
    """Whether a file is a model that `model` made."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        return path.is_file() and ModelProto.FromString(read_bytes(path)).producer_name == PRODUCER
    except DecodeError:
        return False
