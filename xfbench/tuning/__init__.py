"""The best setting of a framework for a network, found with few launches, kept, and used."""
