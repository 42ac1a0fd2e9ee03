"""Masked words and next sentences, first on short sequences, then on long ones. `gpu` counts on a cluster alone."""


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
    threads: 2
    resources:
        mem_mb=8000,
        runtime=4320,
        gpu=1,
    params:
        cmd=dag["pretrain_short"].cmd,
    shell:
        "{params.cmd}"


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
    threads: 2
    resources:
        mem_mb=8000,
        runtime=4320,
        gpu=1,
    params:
        cmd=dag["pretrain_long"].cmd,
    shell:
        "{params.cmd}"
