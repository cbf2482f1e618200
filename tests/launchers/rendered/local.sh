env -i OMP_NUM_THREADS=12 PYTHONHASHSEED=0 XFBENCH_RANK=0 XFBENCH_SIZE=2 /opt/python worker.pyz request.json reply.json
env -i OMP_NUM_THREADS=12 PYTHONHASHSEED=0 XFBENCH_RANK=1 XFBENCH_SIZE=2 /opt/python worker.pyz request.json reply.json
