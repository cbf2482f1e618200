"""Two systems for ReFrame: a cluster, and one machine on which xfbench starts all processes.

On the cluster, ReFrame submits one driver per test, and the driver starts the ranks (see
docs/clusters.md). Therefore the launcher is `local`. `resources` says how a job asks for GPUs.
"""

site_configuration = {
    "systems": [
        {
            "name": "cluster",
            "descr": "compute nodes of a Slurm cluster; change the names and the options",
            "hostnames": ["login"],
            "partitions": [
                {
                    "name": "cpu",
                    "scheduler": "slurm",
                    "launcher": "local",
                    "access": ["--partition=cpu", "--exclusive"],
                    "environs": ["frameworks"],
                    "resources": [{"name": "gpu", "options": ["--gres=gpu:{num_gpus_per_node}"]}],
                }
            ],
        },
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
        },
    ],
    "environments": [{"name": "frameworks"}],
}
