"""From a nearly stationary point to full precision: Newton's method on the KKT system."""
