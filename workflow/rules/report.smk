"""Tables and figures from the results of all other stages; no torch."""


rule report:
    input:
        dag["report"].input,
    output:
        dag["report"].output,
    log:
        "logs/report/all.log",
    benchmark:
        "logs/benchmarks/report/all.tsv"
    conda:
        "../envs/pipeline.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        cmd=dag["report"].cmd,
    shell:
        "{params.cmd}"
