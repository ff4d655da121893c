"""Saved models: `mossp.model.Model.load` reads what `mossp fit` wrote."""

from mossp.app.model import Model, ModelError

__all__ = ["Model", "ModelError"]
