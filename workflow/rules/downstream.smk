"""The tasks: data, fine-tuning (one job for each task and restart), scores."""


rule download_tasks:
    input:
        dag["download_tasks"].input,
    output:
        dag["download_tasks"].output,
    log:
        "logs/download_tasks/all.log",
    benchmark:
        "logs/benchmarks/download_tasks/all.tsv"
    conda:
        "../envs/pipeline.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=120,
    params:
        cmd=dag["download_tasks"].cmd,
    shell:
        "{params.cmd}"


rule finetune:
    input:
        dag["finetune"].input,
    output:
        dag["finetune"].output,
    log:
        "logs/finetune/{task}-{restart}.log",
    benchmark:
        "logs/benchmarks/finetune/{task}-{restart}.tsv"
    conda:
        "../envs/pipeline.yaml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=720,
        gpu=1,
    params:
        cmd=dag["finetune"].cmd,
    shell:
        "{params.cmd}"


rule evaluate:
    input:
        dag["evaluate"].input,
    output:
        dag["evaluate"].output,
    log:
        "logs/evaluate/all.log",
    benchmark:
        "logs/benchmarks/evaluate/all.tsv"
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        cmd=dag["evaluate"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"
