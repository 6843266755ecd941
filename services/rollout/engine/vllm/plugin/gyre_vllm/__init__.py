"""What Gyre adds inside vLLM's own processes and environment: nothing here needs the rest of Gyre, and `digest` and `receiving` need only torch.

vLLM finds this package by PYTHONPATH and loads `extension` as its worker extension.
"""
