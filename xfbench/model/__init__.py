"""The data that parts of xfbench exchange: requests, plans, records, certificates, adapters."""
