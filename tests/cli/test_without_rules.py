"""A rule that somebody takes out makes a kernel slower, never an error: what its neighbours need, they see to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Command

PROGRAMS = {
    "a product": "torch.randn(128, 96) @ torch.randn(96, 130)",
    "elements": "torch.exp(torch.randn(97, 300))",
    "a convolution": "F.conv2d(torch.randn(1, 8, 12, 12), torch.randn(8, 8, 3, 3))",
}
TAKEN_OUT = (("blockify_launch",), ("register_tile",), ("blockify_launch", "register_tile"))


@pytest.mark.parametrize("names", TAKEN_OUT)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.sampled(5)
def test_the_kernel_is_right_and_a_launch(ok: Command, tmp_path: Path, program: str, names: tuple[str, ...]) -> None:
    rules = tmp_path / "without.rw"
    rules.write_text("".join(f"without {name}\n" for name in names))
    record = json.loads(ok(f"run --rules {rules} --target h200 --json --device emulator -c", PROGRAMS[program]).out)
    assert record["ok"] and all(kernel["block"] <= 1024 for kernel in record["kernels"])


def test_a_product_is_slower_without(ok: Command, tmp_path: Path) -> None:
    product = "torch.randn(512, 512) @ torch.randn(512, 512)"
    bench = "bench --target h200 --no-run --no-assemble --json --rules"

    def microseconds(*names: str) -> float:
        rules = tmp_path / "without.rw"
        rules.write_text("".join(f"without {name}\n" for name in names))
        record = json.loads(ok(bench, rules, "-c", product).out)
        return sum(
            k["predicted_us"] for case in record["cases"] for k in case["kernels"] if case["name"] != "end to end"
        )

    usual = microseconds()
    assert all(microseconds(*names) > 1.5 * usual for names in TAKEN_OUT)
