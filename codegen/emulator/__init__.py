"""Runs CUDA text on the CPU: see `runtime.run` for one kernel, `executor.EmulatorExecutor` for a program."""
