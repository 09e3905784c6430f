"""Runs CUDA text on the CPU: see `kernels.run` for one kernel, `executor.EmulatorExecutor` for a program."""
