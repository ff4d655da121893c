"""The paper's experiments, as data, settings and a runner."""

from mossp.experiments.runner import EXPERIMENTS, Reproduction, reproduce

__all__ = ["EXPERIMENTS", "Reproduction", "reproduce"]
