"""Tables and pictures, drawn from run folders alone."""
