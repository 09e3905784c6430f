"""Text from a tiny Qwen2 with made-up weights: the prompt in one call, then token by token with a cache in place.

python examples/models/generate.py

Runs on the emulator, and compares with what transformers says of the same weights.
"""

from __future__ import annotations

import torch

from dplc.codegen.launch import executor
from dplc.codegen.target import target
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.compiler import compiler_with
from dplc.engine.models.compiling import ModelShape
from dplc.engine.models.generating import Generator, compile_generation
from dplc.engine.models.sources import ModelSource, build, make

config = {
    "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip
source, prompt, count = ModelSource("tiny", config), [7, 3, 41, 12, 3], 8

found = compile_generation(source, Dim("s", len(prompt), len(prompt)), 16, ModelShape(), compiler_with(target("sm_80")))
weights = make(found.weights, seed=2, scale=0.4)
generator = Generator(found, executor("emulator"), weights)
tokens = []
for token in generator.tokens(prompt, count, stops=()):
    tokens.append(token)
    print(token, end=" ", flush=True)
print(f"\npeak memory {found.memory.peak} bytes, of it a cache of {found.memory.cache} that no token copies")

model = build(source)
model.load_state_dict(weights, assign=True)
ids = torch.tensor([prompt])
want = model.generate(
    ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, eos_token_id=None
)
print("transformers says the same:", want[0, len(prompt) :].tolist() == tokens)
