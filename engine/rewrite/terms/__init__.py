"""Rules on the values of Tensor IR: rewriting bottom-up to a fixpoint."""
