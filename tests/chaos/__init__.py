"""The proof: genuine clients work while broker and clients are killed, and a checker judges what they saw.

    plan (from a seed) --> workers (confluent-kafka, Java) --> history --> checker --> anomalies
                           faults (broker, clients)        -----^

`make chaos` runs it as long as one likes, `make test` for a minute. README.md in this directory says more.
"""
