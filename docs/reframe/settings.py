"""A system for ReFrame: one machine, on which xfbench starts everything itself.

On a cluster the partition's scheduler is `slurm` and the launcher stays `local`: a test is one
driver, and ranks are its own to start (see docs/clusters.md).
"""

site_configuration = {
    "systems": [
        {
            "name": "workstation",
            "descr": "this machine",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "default",
                    "scheduler": "local",
                    "launcher": "local",
                    "environs": ["frameworks"],
                    "max_jobs": 1,  # what runs beside a measurement spoils it
                }
            ],
        }
    ],
    "environments": [{"name": "frameworks"}],
}
