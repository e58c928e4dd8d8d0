"""One function per component of the substrate, and the sweep that judges all of one cluster's at once."""
