"""A simulator of training jobs that stall: real layouts of process groups, injected faults, evidence in real formats.

It knows nothing of the program under test: it runs the job's operations to where they stop, prints dumps, logs and RAS
status as PyTorch and NCCL would, and keeps the truth to itself. Seeds are drawn at run time and printed.
"""
