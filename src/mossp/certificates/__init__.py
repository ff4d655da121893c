"""What can be proved of a point: witnesses, residuals, exact stationarity, feasibility."""
