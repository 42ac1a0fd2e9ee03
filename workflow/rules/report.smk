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
    group:
        plan.group("results")
    conda:
        "../envs/pipeline.yaml"
    threads: 1
    resources:
        **plan.work(memory=2000, minutes=30),
    params:
        cmd=dag["report"].cmd,
    shell:
        "{params.cmd}"
