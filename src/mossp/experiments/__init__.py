"""The paper's experiments, as data, settings and a runner."""

from mossp.experiments.reproduce import EXPERIMENTS, Reproduction, reproduce

__all__ = ["EXPERIMENTS", "Reproduction", "reproduce"]
