env -i PATH=/usr/bin ibrun -n 4 env -u LD_LIBRARY_PATH -u LD_PRELOAD -u PYTHONPATH -u PYTHONHOME OMP_NUM_THREADS=12 PYTHONHASHSEED=0 /opt/python worker.pyz request.json reply.json
