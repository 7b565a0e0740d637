"""What one host gives: plan, run, redact secrets, write a bundle. Stdlib of Python 3.6 only, nothing else of diagnose.

The folder also works as one file, `diagnose-collect.pyz`, on hosts that have nothing but a python3.

    options  command line -> Options                 discover  training processes, from /proc
    devices  NICs, RDMA devices, groups, from /sys   plan      Options + what was found -> Takes, in phases
    rankplan takes of the job's processes            rasplan   whether and how RAS may be asked (client: ras)
    logs     log files and dumps of the job          watch     waits for a stall in a live log
    runner   one command: limits, groups, kills      executor  all takes: lanes, deadlines, two snapshots
    writer   folder, manifest, archive               secrets   credentials out of texts, always
    identities, names, rewrite: names, addresses out bundles   reading a bundle again: verify

Everything is read-only on the host: no setting is changed, no counter cleared, no process stopped.
"""
