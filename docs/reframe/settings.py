"""A system for ReFrame: one machine, on which xfbench starts all processes.

On a cluster the partition's scheduler is `slurm` and the launcher stays `local`: ReFrame starts one
driver per test, and the driver starts the ranks (see docs/clusters.md).
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
                    "max_jobs": 1,  # other work disturbs a measurement
                }
            ],
        }
    ],
    "environments": [{"name": "frameworks"}],
}
