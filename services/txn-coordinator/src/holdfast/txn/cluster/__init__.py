"""The cluster of coordinators: who leads, who belongs to it, and who applies decisions on which store."""
