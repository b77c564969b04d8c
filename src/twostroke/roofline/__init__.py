"""What hardware can do, and how close a phase came: probes, roofs, bounds, memory. Runs no model."""
