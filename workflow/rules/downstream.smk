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
        **plan.work(memory=1000, minutes=120),
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
    threads: machine.finetune.threads
    resources:
        **plan.on_gpu,
        mem_mb=lambda wildcards: plan.finetuning(wildcards.task)["mem_mb"],
        runtime=lambda wildcards: plan.finetuning(wildcards.task)["runtime"],
    params:
        cmd=dag["finetune"].cmd,
    shell:
        "{params.cmd}"


rule interpret:
    input:
        dag["interpret"].input,
    output:
        dag["interpret"].output,
    log:
        "logs/interpret/all.log",
    benchmark:
        "logs/benchmarks/interpret/all.tsv"
    conda:
        "../envs/pipeline.yaml"
    threads: 1
    resources:
        **plan.work(memory=16000, minutes=120),
    params:
        cmd=dag["interpret"].cmd,
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
    group:
        plan.group("results")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=16000, minutes=120),
    params:
        cmd=dag["evaluate"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"
