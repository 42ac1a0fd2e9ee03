"""From raw dump and books to sentence pairs."""


rule download_wikipedia:
    input:
        dag["download_wikipedia"].input,
    output:
        dag["download_wikipedia"].output,
    log:
        "logs/download_wikipedia/{part}.log",
    benchmark:
        "logs/benchmarks/download_wikipedia/{part}.tsv"
    group:
        plan.group("part")
    conda:
        "../envs/pipeline.yaml"
    threads: 1
    resources:
        **plan.work(memory=1000, minutes=240),
    params:
        cmd=dag["download_wikipedia"].cmd,
    shell:
        "{params.cmd}"


rule download_books:
    input:
        dag["download_books"].input,
    output:
        dag["download_books"].output,
    log:
        "logs/download_books/all.log",
    benchmark:
        "logs/benchmarks/download_books/all.tsv"
    group:
        plan.group("books")
    conda:
        "../envs/pipeline.yaml"
    threads: 1
    resources:
        **plan.work(memory=1000, minutes=240),
    params:
        cmd=dag["download_books"].cmd,
    shell:
        "{params.cmd}"


rule wikipedia:
    input:
        dag["wikipedia"].input,
    output:
        dag["wikipedia"].output,
    log:
        "logs/wikipedia/{part}.log",
    benchmark:
        "logs/benchmarks/wikipedia/{part}.tsv"
    group:
        plan.group("part")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=8000, minutes=720),
    params:
        cmd=dag["wikipedia"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule books:
    input:
        dag["books"].input,
    output:
        dag["books"].output,
    log:
        "logs/books/all.log",
    benchmark:
        "logs/benchmarks/books/all.tsv"
    group:
        plan.group("books")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=4000, minutes=240),
    params:
        cmd=dag["books"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule vocabulary:
    input:
        dag["vocabulary"].input,
    output:
        dag["vocabulary"].output,
    log:
        "logs/vocabulary/all.log",
    benchmark:
        "logs/benchmarks/vocabulary/all.tsv"
    group:
        plan.group("corpus")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=32000, minutes=480),
    params:
        cmd=dag["vocabulary"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule tokens:
    input:
        dag["tokens"].input,
    output:
        dag["tokens"].output,
    log:
        "logs/tokens/all.log",
    benchmark:
        "logs/benchmarks/tokens/all.tsv"
    group:
        plan.group("corpus")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=16000, minutes=480),
    params:
        cmd=dag["tokens"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule examples:
    input:
        dag["examples"].input,
    output:
        dag["examples"].output,
    log:
        "logs/examples/all.log",
    benchmark:
        "logs/benchmarks/examples/all.tsv"
    group:
        plan.group("corpus")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=32000, minutes=480),
    params:
        cmd=dag["examples"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"
