"""Masked words and next sentences, first on short sequences, then on long ones.

In a Slurm job the processes, one a GPU, are started by srun, unless you set LAUNCH yourself.
"""


rule pretrain_short:
    input:
        dag["pretrain_short"].input,
    output:
        dag["pretrain_short"].output,
    log:
        "logs/pretrain/short.log",
    benchmark:
        "logs/benchmarks/pretrain/short.tsv"
    conda:
        "../envs/pipeline.yaml"
    threads: machine.pretrain.threads
    resources:
        **plan.pretraining("short"),
    params:
        cmd=dag["pretrain_short"].cmd,
        launch=plan.launcher("short", threads=machine.pretrain.threads),
    shell:
        "LAUNCH=${{LAUNCH:-${{SLURM_JOB_ID:+{params.launch:q}}}}}; {params.cmd} || workflow/requeue.sh $?"


rule pretrain_long:
    input:
        dag["pretrain_long"].input,
    output:
        dag["pretrain_long"].output,
    log:
        "logs/pretrain/long.log",
    benchmark:
        "logs/benchmarks/pretrain/long.tsv"
    conda:
        "../envs/pipeline.yaml"
    threads: machine.pretrain.threads
    resources:
        **plan.pretraining("long"),
    params:
        cmd=dag["pretrain_long"].cmd,
        launch=plan.launcher("long", threads=machine.pretrain.threads),
    shell:
        "LAUNCH=${{LAUNCH:-${{SLURM_JOB_ID:+{params.launch:q}}}}}; {params.cmd} || workflow/requeue.sh $?"
