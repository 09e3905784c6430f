"""What people write rules with: a reference, formatting, doubts, skeletons, and the server of editors."""
