"""dplc in a notebook: objects show themselves, and a cell may be a rule."""

from __future__ import annotations

import pytest
import torch
from view_programs import EXPONENTIALS, RULE

import dplc
from dplc.engine.view.live_program import effect
from dplc.ir.diagnostic import DplcError

BROKEN = RULE.replace("exp(b))", "exp(b)")
FIRED = "product_of_exponentials: fired 1 time"
COMPILED = "import dplc, torch\ndplc.compile(lambda x: torch.exp(x), (torch.randn(64),), device='emulator', db=False)"
CANDIDATE = """
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.explore.explore import exploration
from dplc.engine.ruleset import toolchain
values = compiler_with(target()).values(capture_text("torch.exp(torch.randn(64))"))
exploration(values).by_rules()
"""


def test_a_rule_shows_its_effect_or_its_error() -> None:
    shown = effect(RULE, EXPONENTIALS)._repr_html_()
    assert all(part in shown for part in (FIRED, "predicted", "what it changes in the CUDA", "exp2_approx"))
    shown = effect(RULE, "torch.relu(torch.randn(64))")._repr_html_()
    assert "did not fire" in shown and "The CUDA is the same." in shown
    with pytest.raises(DplcError) as caught:
        effect(BROKEN, EXPONENTIALS)
    assert "the cell:" in caught.value.render()


def test_a_compiled_function_shows_its_kernels() -> None:
    compiled = dplc.compile(lambda x: torch.softmax(x, -1), (torch.randn(4, 512),), db=False)
    shown = compiled._repr_html_()
    assert "softmax" in shown and "predicted" in shown and "__global__" in shown
    assert "<script" not in shown and "&lt;" in shown  # the CUDA's `<` stays text


@pytest.mark.slow
def test_a_notebook_runs_it() -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[dev]'")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    cells = ["%load_ext dplc", f"%%dplc_rule {EXPONENTIALS}\n{RULE}", f"%%dplc_rule\n{BROKEN}", COMPILED, CANDIDATE]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    output_text = "".join(output.get("text", "") for output in notebook.cells[2].outputs)
    assert "the cell:" in output_text and "Traceback" not in output_text
    made_by = ["made by", "the rules in their order", "<summary>program</summary>"]
    for number, says in ((1, [FIRED]), (3, ["dplc.Compiled for emulator", "__global__"]), (4, made_by)):
        (output,) = notebook.cells[number].outputs
        assert all(part in output["data"]["text/html"] for part in says)
