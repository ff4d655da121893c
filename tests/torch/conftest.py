"""PyTorch with one thread: the models are tiny, and workers run side by side."""

import torch

torch.set_num_threads(1)
