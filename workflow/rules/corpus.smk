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


rule clean_wikipedia:
    input:
        dag["clean_wikipedia"].input,
    output:
        dag["clean_wikipedia"].output,
    log:
        "logs/clean_wikipedia/{part}.log",
    benchmark:
        "logs/benchmarks/clean_wikipedia/{part}.tsv"
    group:
        plan.group("part")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=8000, minutes=720),
    params:
        cmd=dag["clean_wikipedia"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule clean_books:
    input:
        dag["clean_books"].input,
    output:
        dag["clean_books"].output,
    log:
        "logs/clean_books/all.log",
    benchmark:
        "logs/benchmarks/clean_books/all.tsv"
    group:
        plan.group("books")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=4000, minutes=240),
    params:
        cmd=dag["clean_books"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule train_tokenizer:
    input:
        dag["train_tokenizer"].input,
    output:
        dag["train_tokenizer"].output,
    log:
        "logs/train_tokenizer/all.log",
    benchmark:
        "logs/benchmarks/train_tokenizer/all.tsv"
    group:
        plan.group("corpus")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=32000, minutes=480),
    params:
        cmd=dag["train_tokenizer"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule tokenize:
    input:
        dag["tokenize"].input,
    output:
        dag["tokenize"].output,
    log:
        "logs/tokenize/all.log",
    benchmark:
        "logs/benchmarks/tokenize/all.tsv"
    group:
        plan.group("corpus")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=16000, minutes=480),
    params:
        cmd=dag["tokenize"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule train_word_vectors:
    input:
        dag["train_word_vectors"].input,
    output:
        dag["train_word_vectors"].output,
    log:
        "logs/train_word_vectors/all.log",
    benchmark:
        "logs/benchmarks/train_word_vectors/all.tsv"
    conda:
        "../envs/pipeline.yaml"
    threads: 1
    resources:
        **plan.work(memory=16000, minutes=480),
    params:
        cmd=dag["train_word_vectors"].cmd,
    shell:
        "{params.cmd}"


rule build_examples:
    input:
        dag["build_examples"].input,
    output:
        dag["build_examples"].output,
    log:
        "logs/build_examples/all.log",
    benchmark:
        "logs/benchmarks/build_examples/all.tsv"
    group:
        plan.group("corpus")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=32000, minutes=480),
    params:
        cmd=dag["build_examples"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"


rule corpus_statistics:
    input:
        dag["corpus_statistics"].input,
    output:
        dag["corpus_statistics"].output,
    log:
        "logs/corpus_statistics/all.log",
    benchmark:
        "logs/benchmarks/corpus_statistics/all.tsv"
    group:
        plan.group("results")
    conda:
        "../envs/pipeline.yaml"
    threads: 4
    resources:
        **plan.work(memory=16000, minutes=240),
    params:
        cmd=dag["corpus_statistics"].cmd,
    shell:
        "PIPELINE_WORKERS={threads} {params.cmd}"
