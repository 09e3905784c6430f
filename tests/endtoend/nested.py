"""Folds over what was folded: losses, sums of rows that were normalised, a product that is summed up."""

from __future__ import annotations

NESTED = (
    "F.cross_entropy(torch.randn(1, 3), torch.randint(0, 3, (1,)))",
    "F.cross_entropy(torch.randn(64, 300), torch.randint(0, 300, (64,)))",
    "F.cross_entropy(torch.randn(1027, 101), torch.randint(0, 101, (1027,)))",
    "F.cross_entropy(torch.randn(3, 40009), torch.randint(0, 40009, (3,)), reduction='sum')",
    "F.cross_entropy(torch.randn(9, 50), torch.where(torch.arange(9) % 3 == 0, 7, -100))",
    "F.cross_entropy(torch.randn(2, 7, 5, 3), torch.randint(0, 7, (2, 5, 3)))",
    "F.log_softmax(torch.randn(6, 33001), -1)[:, 3].sum()",
    "F.softmax(torch.randn(5, 33000), -1).square().sum()",
    "torch.logsumexp(torch.randn(513, 7), -1).mean()",
    "(torch.randn(7, 1201) * torch.randn(7, 1)).sum()",
    "(torch.randn(700, 41) * torch.randn(700, 1)).square().sum()",
    "torch.relu(torch.randn(67, 130) @ torch.randn(130, 71)).sum(-1)",
    "F.layer_norm(torch.randn(19, 129), (129,)).square().mean()",
    "torch.randn(37, 64).softmax(-1).max(-1)[0].sum()",
)
