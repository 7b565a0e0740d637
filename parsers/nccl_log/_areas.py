"""What a warning is about, by its words. The first line of the table that matches decides.

Order matters: what names its subsystem in front comes first, then the subjects from special to general.
"""

from __future__ import annotations

import re

OTHER = "other"

_TABLE: tuple[tuple[str, str], ...] = (
    # subsystems that sign their messages
    ("socket", r"^NET/Socket|^Net :|^socket[A-Z]|^(?:nccl|crypt)(?:Os|Crypt)?Socket[A-Z]"),
    ("ras", r"^RAS\b(?! diagnostics)|RAS thread|\bras[A-Z]"),
    ("diagnostics", r"^RAS diagnostics|[Dd]iagnostics\b|GFD test"),
    ("nvls", r"\bNVLS\b|NVLink SHARP|[Mm]ulticast|[Mm]ultimem|\bMC (?:arena|group|team)|\bMCBasePtr\b|symmetric kernel.{0,40}NVLS"),
    ("mnnvl", r"\bMNNVL\b|\bIMEX\b|[Cc]lique|[Ff]abric handle|\bFABRIC handle|NVLink fabric health"),
    ("version", r"version (?:mismatch|detected)|NCCL (?:git )?versions?\b.{0,40}detected|NCCL library|too old version of NCCL|compiled with.{0,20} NCCL|git versions|backwards compatible|is deprecated|CUDA version for CUDA graph"),
    ("collnet", r"\b[Cc]oll[Nn]et\b|COLLNET|\bSHARP\b|\bsharp\b|SHArP|sharp_"),
    ("net_plugin", r"^NET/OFI|^NET/UCX|^NET UCX|^NET/UCT|\bUCX\b|\bUCT\b|\bucx_|\bucp_|\buct_|[Ll]ibfabric|worker allocation|\bAM handler|\bEP memory|connect to EP|\biface\b|\bMD\[|rkey for|active message|[Gg]in[ /]?(?:v\d+|[Pp]lugin)|GIN plugin|(?:net|network|NET|rma|gin)Plugin|[Nn]etwork plugin|NET plugin|External \w+ plugin|plugin has|network \S+ not found|/Plugin:"),
    ("gdr", r"\bGDR\b|GDRCOPY|GDRCopy|gdr_|GPU Direct|GPUDirect|[Pp]eermem|DMA-?BUF|dmabuf|nv_peer"),
    ("shm", r"/dev/shm|\bSHM\b|\bshm\b|shm_|[Ss]hared memory|posix_fallocate|Could not map|view of file"),
    ("net_ib", r"NET/IB|NET/MLX5|RMA/IB|\bibv_|\bIBV_|\bIb[A-Z]|ncclIb|\bIB (?:device|port)|\bmlx5|libibverbs|\bQP\b|active_mtu|\bFLID\b|\bCQ\b|\bGID\b|doca|DOCA|verbs|relaxed order"),
    ("net_plugin", r"\b(?:GIN|Gin|gin|RMA|Rma|rma)\b|ncclGin|ncclRma|GDAKI|GinCtx|[rR]mi?a proxy|one-sided|One.sided|ncclPutSignal|ncclWaitSignal|ncclSignal\b|peerWin|window registered for RMA|signal (?:index|ops)|unpack|UNPACK"),
    ("tuning", r"algorithm|ALGO\b|PROTO\b|algSelection|AlgSelection|[Tt]uner|TUNER|tuning|pattern #|\bLL128\b|token \"|no symmetric kernel|[Nn]Threads|[Cc]hunk ?[Ss]ize|CHUNK|NTHREADS|THREADS_THRESHOLD|BUFFSIZE"),
    ("registration", r"[Rr]egist(?:er|ration|ered)|[Dd]e?[Rr]eg(?:ister|Mr)|regBuf|[Ww]indow|\bsymmetric\b|[Ss]hareable|regMr|userbuff|\bCFT\b|\bLSA\b|[Ss]egments?\b|address map|reg[A-Z]\w+Cache|mhandle|\bMR\b|\bmr\b|[Ii]ntrusive"),
    # where ranks meet
    ("bootstrap", r"[Bb]ootstrap|NCCL_COMM_ID|OOB_NET|UniqueId|unique id|checked in|no socket interface|No usable listening|NCCL_HOSTID|hostHash|HostHash|ncclCommGrow: magic"),
    ("p2p", r"\bP2P\b|peer access|\bp2p\b|P2p\b|IPC\b|cudaIpc|cuIpc|[Ii]pc[A-Z]|failed to peer|CUMEM|cuMem|\bUDS\b|[Ff]d\b.{0,30}(?:peer|remote)|ConvertFd|GetFd\b|QueryFd"),
    ("socket", r"NET/Socket|[Ss]ocket|\bNet :|[Cc]onnect to|[Cc]onnect returned|[Cc]onnection closed|Call to (?:connect|accept|bind|listen|recv|send|getsockname|getsockopt|setsockopt|getifaddrs|socket|shutdown|poll|fcntl|close)\b|SO_\w+|remote address|interface (?:found|in)|[Aa]ccept failed|[Hh]andshake|ncclCrypt|TLS\b|[Ee]ncryption|\bpsk\b|IPv6|Message truncated|message truncated|socket hello|no device found|no interface|Failed to (?:recv|send):|AdaptersAddresses|adapter addresses|WSA|[Pp]oll(?:ing)? failed|close failed|address info|IP family|family type|GetPeerAddr"),
    ("proxy", r"[Pp]roxy|Service thread|Progress Thread|proxyOp|opId=|Rem Allocator|[Ll]ocalRank \d.{0,40}closing|Active list|Free list|List loop|op chain|response buffer|async op|has next set|Element .{0,10}of pool|pool of op|append|Inactive op"),
    # the machine
    ("topology", r"[Tt]opo|TOPO|\bXML\b|[Xx]ml|NVML|nvml|[Aa]ffinity|NUMA|numa|PCI\b|sysfs|/sys/|busId|BusId|NVLink|NVLINK|C2c|C2C|real path|CPU|[Ii]ntermediate GPU|local GPU|gpu rank|\bpath\b|link(?:s)? (?:max|width)|NIC\b|NICs|rail|plane|[Nn]etDevs|net id|NET with|net device|device count|Net device|netMask|rev link|reverse path|node of type|DEV for GPU|GPUs? per node|[Nn]ode (?:of|ranks)|could not find (?:NET|GPU|CPU|PCI)|KV Convert|no transport|No transport|rank for nvml"),
    ("cuda", r"[Cc]uda|CUDA|\bcu[A-Z]\w+|compute capability|kernel|[Gg]raph|[Ss]tream\b|[Ss]treams\b|dynamic smem|PFN|[Dd]river|captured|GPU model|\bHIP\b|hip[A-Z]|device code|\bGPUs?\b.{0,20}(?:error|fail)"),
    ("memory", r"malloc|calloc|\b[Aa]lloc(?:at(?:e|ed|ion))?\b|out of memory|[Mm]emory|MemManager|mmap|munmap|[Bb]uffer (?:size|pool)|posix_memalign|ran out of|WORK_FIFO|refcount|refCount|freelist|[Ff]reeing|FIFO|no room|[Nn]ot enough space|[Ss]tack is full"),
    ("arguments", r"argument|invalid|Invalid|Invalig|not a valid|NULL|is null|root|[Dd]ata ?type|type given|reduction op|RedOp|[Rr]educ|collective mismatch|Mismatched collective|may be hanging|[Gg]roup(?:End|Start|JobLaunch| call|)\b|blocking|mismatchs with|[Ss]end to self|recv to self|matching (?:send|recv)|improper usage|parent comm|[Cc]ommunicators? in|ncclConfig|[Cc]onfig\b|CTAs|POLICY|count must be|too many (?:coll|work|agg)|Too many agg|Trying to launch|within a group|not supported|sendrecv|Sendrecv|P2p (?:op|sched)|is garbage|out of (?:range|bounds)|too (?:big|small|long|large)|power of (?:2|two)|must be|should be|[Ii]gnor(?:ed|ing)|set(?:ting)? it to|[Uu]nexpected|[Uu]nknown|[Uu]nsupported"),
    ("init", r"\bcomm (?:%|0x|\(nil\)|\w+ )|[Cc]ommunicator|[Ii]nit(?:ializ|$| )|[Dd]estroy|[Aa]bort|commReclaim|Reclaim|CommSplit|CommGrow|CommShrink|child comm|NCCL_\w+|[Pp]rofiler|thread|[Ii]ntra|[Ll]ocal ranks|internal error|Internal error|host setup|job|tree|ring|environment variable|plugin|resource|async|rank|plan|handle|library|libr|symbol|dlsym|dlopen|[Ff]ailed to open|pthread|getrlimit|Call to|open failed|/proc|file"),
)  # fmt: skip

_PATTERNS = tuple((area, re.compile(pattern)) for area, pattern in _TABLE)


def area_of(message: str) -> str:
    """Area of a warning by its text alone."""
    text = message[:600]
    return next((area for area, pattern in _PATTERNS if pattern.search(text)), OTHER)
