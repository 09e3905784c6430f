"""dplc in a notebook: objects show themselves, and a cell may be a rule."""

from __future__ import annotations

import pytest
import torch

import dplc
from dplc.engine.view.live_program import effect
from dplc.ir.diagnostic import DplcError

TEXT = "torch.exp(torch.randn(64)) * torch.exp(torch.randn(64))"
RULE = """@approx
rule product_of_exponentials on tensor
match
    y = multiply(exp(a), exp(b))
rewrite
    y = exp(add(a, b))
"""
COMPILED = "import dplc, torch\ndplc.compile(lambda x: torch.exp(x), (torch.randn(64),), device='emulator', db=False)"
CANDIDATE = """
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.explore.candidates import exploration
from dplc.engine.ruleset import toolchain
values = compiler_with(target()).values(capture_text("torch.exp(torch.randn(64))"))
exploration(values).by_rules()
"""


def test_a_rule_shows_its_effect() -> None:
    shown = effect(RULE, TEXT)._repr_html_()
    assert "product_of_exponentials: fired 1 time" in shown
    assert "predicted" in shown and "what it changes in the CUDA" in shown
    assert "exp2_approx" in shown


def test_a_rule_that_does_not_fire_says_so() -> None:
    shown = effect(RULE, "torch.relu(torch.randn(64))")._repr_html_()
    assert "did not fire" in shown and "The CUDA is the same." in shown


def test_a_broken_rule_is_an_error_at_its_place() -> None:
    with pytest.raises(DplcError) as caught:
        effect(RULE.replace("exp(b))", "exp(b)"), TEXT)
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
    cells = ["%load_ext dplc", f"%%dplc_rule {TEXT}\n{RULE}", f"%%dplc_rule\n{RULE.replace('exp(b))', 'exp(b)')}"]
    cells += [COMPILED, CANDIDATE]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    (shown,) = notebook.cells[1].outputs
    assert "product_of_exponentials: fired 1 time" in shown["data"]["text/html"]
    told = "".join(output.get("text", "") for output in notebook.cells[2].outputs)
    assert "the cell:" in told and "Traceback" not in told
    (shown,) = notebook.cells[3].outputs
    assert "dplc.Compiled for emulator" in shown["data"]["text/html"] and "__global__" in shown["data"]["text/html"]
    (shown,) = notebook.cells[4].outputs
    assert "made by" in shown["data"]["text/html"] and "the rules in their order" in shown["data"]["text/html"]
    assert "<summary>program</summary>" in shown["data"]["text/html"]
