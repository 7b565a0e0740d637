"""Many hosts: the one-file collector is sent to each, results stream back into one bundle with a folder a host.

    names       what the user named -> hosts, and a safe folder name for each
    ssh, slurm, kubernetes   hosts -> links: local commands whose standard streams lead to one or several hosts
    engine      runs links on ClusterShell: fan-out, time limits, interrupts
    remote      the program at the far end; Python 3.6, sent as text, unpacks and runs the collector there
    visit       the near end: one host's lines -> an archive that is whole, or a reason
    unpack      an archive that nobody vouches for -> files below one folder
    bundle      the folder `*.partial/` with a folder a host, one manifest, the final name
    gather      all of it together

What comes from a host is not trusted: sizes are bounded, names are checked, nothing lands outside its folder.
"""
