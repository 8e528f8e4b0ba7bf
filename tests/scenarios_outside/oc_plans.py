"""What users may do wrong, and how often: tables."""

NAMES = {
    "train": ("llm7b-sft", "pretrain-1b3", "dit-xl", "moe-small", "asr-large"),
    "mpi": ("gromacs-md", "icon-r2b9", "vasp-relax", "lammps-si"),
    "single": ("eval-mmlu", "embed-corpus", "finetune-lora", "unet3d", "tokenize"),
    "notebook": ("jupyter", "vscode-tunnel"),
    "array": ("hpsweep", "dock-screen", "ablate"),
}
ERRORS = {
    "err_assert": (
        1,
        [
            "Traceback (most recent call last):",
            '  File "{dir}/train.py", line 212, in <module>',
            "    main()",
            '  File "{dir}/data.py", line 88, in __getitem__',
            '    assert tokens.max() < self.vocab_size, f"token id {{tokens.max()}} out of range"',
            "AssertionError: token id 50304 out of range",
        ],
    ),
    "err_path": (
        1,
        [
            "Traceback (most recent call last):",
            '  File "{dir}/prep.py", line 31, in load',
            "    with open(path) as handle:",
            "FileNotFoundError: [Errno 2] No such file or directory: '{dir}/cfg/run_v3.yaml'",
        ],
    ),
    "err_module": (
        1,
        [
            "Traceback (most recent call last):",
            '  File "{dir}/main.py", line 4, in <module>',
            "    import flash_attn",
            "ModuleNotFoundError: No module named 'flash_attn'",
        ],
    ),
    "err_nan": (
        1,
        [
            "WARNING: grad norm is nan, skipping step",
            "WARNING: grad norm is nan, skipping step",
            "Traceback (most recent call last):",
            '  File "{dir}/train.py", line 341, in step',
            '    raise FloatingPointError(f"loss is {{loss}} for 50 steps, giving up")',
            "FloatingPointError: loss is nan for 50 steps, giving up",
        ],
    ),
    "err_key": (
        1,
        [
            "Traceback (most recent call last):",
            '  File "{dir}/eval.py", line 59, in score',
            "    return table[sample['answer']]",
            "KeyError: 'answer'",
        ],
    ),
    "err_quota": (
        1,
        [
            "Traceback (most recent call last):",
            '  File "{dir}/train.py", line 402, in save',
            "    torch.save(state, tmp)",
            "OSError: [Errno 122] Disk quota exceeded: '{dir}/ckpt/step_8000.pt.tmp'",
        ],
    ),
    "err_perm": (126, ["/var/spool/slurmd/job{jid}/slurm_script: line 14: ./run_all.sh: Permission denied"]),
    "err_missing": (127, ["/var/spool/slurmd/job{jid}/slurm_script: line 9: conda: command not found"]),
    "err_port": (
        1,
        [
            "[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
            "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
        ],
    ),
    "err_ckpt": (
        1,
        [
            "Traceback (most recent call last):",
            '  File "{dir}/train.py", line 97, in resume',
            "    state = torch.load(path, map_location='cpu')",
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        ],
    ),
    "err_shape": (
        1,
        [
            "Traceback (most recent call last):",
            '  File "{dir}/model.py", line 140, in forward',
            "    x = self.proj(x)",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x1280 and 1024x1024)",
        ],
    ),
    "err_image": (
        1,
        [
            "pyxis: importing docker image: registry.local/ml/{name}:v3",
            "slurmstepd: error: pyxis: child 88121 failed with error code: 1",
            "slurmstepd: error: pyxis: failed to import docker image",
            "slurmstepd: error: pyxis: [ERROR] URL https://registry.local/v2/ml/{name}/manifests/v3 returned error code: 404 Not Found",
        ],
    ),
    "err_hub": (
        1,
        [
            "Traceback (most recent call last):",
            '  File "{dir}/main.py", line 22, in <module>',
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /api/models/x (Caused by "
            "NameResolutionError: Failed to resolve 'huggingface.co')",
        ],
    ),
    "err_shm": (
        1,
        [
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
            "RuntimeError: DataLoader worker (pid 40112) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please "
            "try to raise your shared memory limit.",
        ],
    ),
    "err_store": (
        1,
        [
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.",
        ],
    ),
    "err_loader": (
        1,
        [
            "RuntimeError: DataLoader worker (pid 61774) exited unexpectedly with exit code 1. Details are lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace."
        ],
    ),
}


PLANS = {
    "train": (
        ("ok", 95),
        ("err_assert", 4),
        ("err_nan", 5),
        ("err_ckpt", 3),
        ("err_quota", 3),
        ("oom_cuda", 5),
        ("timeout", 7),
        ("cancel_self", 6),
        ("desync", 2),
        ("err_store", 2),
        ("err_shm", 2),
        ("cancel_other", 2),
        ("hang_unknown", 2),
        ("cancel_admin", 1),
    ),
    "mpi": (
        ("ok", 75),
        ("mpi_abort", 5),
        ("err_path", 3),
        ("err_segv", 4),
        ("timeout", 5),
        ("cancel_self", 3),
        ("oom_cgroup", 3),
    ),
    "single": (
        ("ok", 130),
        ("err_key", 4),
        ("err_path", 4),
        ("err_module", 4),
        ("err_xid31", 4),
        ("oom_cgroup", 4),
        ("oom_cuda", 4),
        ("err_perm", 2),
        ("err_missing", 2),
        ("silent", 3),
        ("killed", 2),
        ("err_hub", 3),
        ("err_shm", 2),
        ("timeout", 3),
        ("cancel_self", 3),
        ("err_image", 2),
        ("err_loader", 2),
        ("requeuehold", 1),
    ),
    "notebook": (("timeout", 12), ("cancel_self", 8), ("ok", 35), ("err_xid13", 4), ("oom_cgroup", 3)),
    "array": (("ok", 70), ("err_shape", 5), ("err_port", 3), ("oom_cuda", 3), ("err_xid31", 2), ("timeout", 2)),
}
SHAPES = {
    "train": ((2, 2, 3, 4, 4, 6, 8, 12), (8,)),
    "mpi": ((2, 3, 4, 6), (8,)),
    "single": ((1,), (1, 2, 4, 8)),
    "notebook": ((1,), (1,)),
    "array": ((1,), (1, 2)),
}
SPANS = {
    "train": (2400, 14400),
    "mpi": (1200, 7200),
    "single": (300, 6000),
    "notebook": (1800, 7200),
    "array": (400, 2600),
}
QUICK = (
    "err_path",
    "err_module",
    "err_perm",
    "err_missing",
    "err_port",
    "err_ckpt",
    "err_image",
    "err_shape",
    "err_quota",
    "oom_cuda",
)
