"""What parts of xfbench hand to one another: requests, plans, records, certificates, adapters."""
