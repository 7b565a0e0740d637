"""Takes identities out of texts: host names, addresses, users and paths. The same thing gets the same token everywhere.

Two passes: `learn` over all texts, then `text` on each. Host tokens are numbered in the order of the names, so order
survives; addresses keep their subnets of every length (bits are flipped by a key and the bits before them, as
prefix-preserving anonymisers do; the last byte of IPv4 stays); private, link-local and multicast ranges stay what they
are. `mapping` is the private key to all of it.
"""

import hashlib
import hmac
import ipaddress
import os
import re
from typing import Dict, Iterable, Match, Optional, Set, Tuple

from .names import (
    ACCOUNTS,
    CANDIDATE,
    MAIL,
    NAME,
    NO_ACCOUNT,
    PROJECT,
    REMOTE,
    UPPER_DEVICE,
    URL,
    base_domain,
    compress,
    expand,
    is_domain,
    natural,
    relatives,
)

MAX_CANDIDATES = 200_000

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9][A-Za-z0-9-]*)*")
_HOSTLIST = re.compile(
    r"\b([A-Za-z][A-Za-z0-9-]{0,60}?)\[(\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?){0,500})\]([A-Za-z0-9-]{0,20})"
)
# Formats in which a host name stands: NCCL and libfabric lines, Slurm, torchrun, c10d, uname, journal, LLDP, IB, env.
_HOSTS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        NAME + r":\d{1,9}:\d{1,9} \[\d{1,3}\] NCCL",
        r"\b(?:MASTER_ADDR|HOSTNAME|SLURMD_NODENAME|SLURM_LAUNCH_NODE|SLURM_SUBMIT_HOST|POD_NAME|NODE_NAME)=" + NAME,
        r"\b(?:BatchHost|NodeName|NodeHostName|NodeAddr|AllocNode:Sid|SysName:?|SubmitHost)[=:]?\s*" + NAME,
        r"^\s+host\s+: " + NAME,
        r"(?:addr|remote)=\[" + NAME + r"\]:\d",
        r"^Linux " + NAME + r" \d",
        r"^\d{4}-\d\d-\d\dT[\d:.,]+(?:[+-]\d\d:?\d\d|Z)? " + NAME + r" (?:kernel|[\w./-]{1,60}\[\d+\]): ",
        r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d " + NAME + r" (?:kernel|[\w./-]{1,60}\[\d+\]): ",
        r"\bon node " + NAME,
        r"\"(?:host|hostname|name)\": \"" + NAME + r"\", \"pid\"",
        NAME + r" (?:HCA-\d|mlx5_\d{1,2})\"?\s*(?:lid|\()",
        r"\bprocess(?:es)? \d+ on node " + NAME,
        r"(?:srun|slurmstepd): error: " + NAME + r": ",
        r"\b(?:JOB|STEP) [\d.+_]{1,30} ON " + NAME,
        r"\bconnect to host " + NAME + r" port \d",
        r"\bCould not resolve hostname " + NAME,
    )
)
_LISTS = re.compile(r"(?:NODELIST|[Nn]ode[Ll]ist|hosts)=([A-Za-z][^\s()]{0,4000})")
_LISTED = re.compile(r"(?:^|,)([A-Za-z][A-Za-z0-9-]{0,60})(?:\[([\d,-]{1,3000})\])?([A-Za-z0-9-]{0,20})")
_GENERIC = frozenset(
    """
    localhost localdomain host node nodes gpu server worker master login head none null unknown linux ubuntu
    debian centos rocky redhat kernel systemd python torch nccl ib0 eth0 lo error info warn job rank local cluster
    default example invalid
    """.split()
)
_USERS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"/(?:home|users|Users|u)/([A-Za-z][\w.-]{1,31})(?=[/\s:'\"]|$)",
        r"\b(?:UserId|GroupId)=([A-Za-z][\w.-]{1,31})\(\d+\)",
        r"\b(?:USER|LOGNAME|SLURM_JOB_USER|SUDO_USER)=([A-Za-z][\w.-]{1,31})\b",
        r"^\s*\d+\s+\d+\s+([A-Za-z][\w.-]{1,19})\s+[RSDTtZXIKWPs<NLl+]{1,6}\s",
        r"\b(?:user|uid)=(?!\d)([A-Za-z][\w.-]{1,31})\b",
    )
)
_SYSTEM_USERS = frozenset(
    """
    root daemon bin sys nobody nogroup systemd systemd-timesync systemd-network systemd-resolve messagebus dbus polkitd
    chrony ntp munge slurm sshd rpc rpcuser statd _chrony _rpc avahi colord syslog postfix mail www-data nginx uuidd tss
    libvirt-qemu kvm lldpd _lldpd lldp nvidia-persistenced nv-fabricmanager dcgm kube etcd user users shared public
    """.split()
)
_ROOTS = (
    "home|users|Users|u|root|scratch|data|mnt|lustre|gpfs|work|project|projects|proj|nfs|fsx|shared|efs|beegfs|weka|workspace"
    "|raid|local|export|net|vol|volumes|pfs|storage|checkpoint|checkpoints|datasets|dataset|tmp|var/tmp|opt/ml|p|mount|media|srv"
)
_PATH = re.compile(r"(?<![\w.~/-])/(?:" + _ROOTS + r")(?:/[^\s/:'\"`,;()<>|\[\]{}=&?*\\#]{1,200}){1,40}")
_PUBLIC = re.compile(
    r"(?:site-packages|dist-packages|lib|lib64|bin|sbin|share|include|usr|opt|python\d(?:\.\d+)?|envs?|\.?venv|miniconda3?|anaconda3?|conda|logs?|"
    r"checkpoints?|data|src|train(?:ing)?|cache|\.cache|torch|nvidia|nccl|cudnn|cuda[\w.-]*|\d{1,6}|attempt_\d+|rank_?\d+|default)\Z"
)
_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f]|:[0-9A-Fa-f])")
_LONG_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){7,19}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
_GUID = re.compile(r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{4}(?::[0-9A-Fa-f]{4}){3}(?![0-9A-Fa-f:])")
_HEX_GUID = re.compile(r"(?i)(guid\W{0,6}|[HS]-|\()(0x)?([0-9a-f]{16})(?![0-9a-f])")
_V4 = re.compile(r"(?<![\w.-])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\w-]|\.\d)")
_V4_NAME = re.compile(r"\bip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})\b")
_V6 = re.compile(
    r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:|:){2,7}(?:[0-9A-Fa-f]{1,4}|:)?(?:\d{1,3}(?:\.\d{1,3}){3})?(?![\w:]|\.\d)"
)


class Identities(object):
    """Learns what identifies, then replaces it."""

    def __init__(self) -> None:
        self._key = os.urandom(16)
        self._hosts: Set[str] = set()
        self._users: Set[str] = set()
        self._parts: Set[str] = set()
        self._domains: Set[str] = set()
        self._bases: Set[str] = set()
        self._spelled: Set[str] = set()
        self._candidates: Set[str] = set()
        self._logins: Set[Tuple[str, str]] = set()
        self._numbers: Dict[str, int] = {}
        self._tokens: Dict[str, str] = {}
        self.mapping: Dict[str, str] = {}

    # --- first pass --------------------------------------------------------------------------------

    def learn_hosts(self, names: Iterable[str]) -> None:
        """Names known to be hosts."""
        for name in names:
            self._add_host(name, sure=True)

    def learn(self, text: str) -> None:
        """Find hosts, users and path components in a text."""
        for pattern in _HOSTS:
            for found in pattern.finditer(text):
                self._add_host(found.group(1))
        for found in _LISTS.finditer(text):
            for item in _LISTED.finditer(found.group(1)):
                for name in expand(item.group(1), item.group(2) or "", item.group(3)):
                    self._add_host(name)
        for pattern in _USERS:
            self._users.update(
                u for u in pattern.findall(text) if u not in _SYSTEM_USERS and not u.startswith(("systemd-", "_"))
            )
        for found in _PATH.finditer(text):
            self._parts.update(p for p in found.group().split("/")[2:] if not _kept(p))
        self._learn_accounts(text)
        if len(self._candidates) < MAX_CANDIDATES:
            self._candidates.update(CANDIDATE.findall(text))

    def _learn_accounts(self, text: str) -> None:
        """Addresses of mail and logins, and accounts of experiment trackers."""
        if "@" in text:
            for user, host in MAIL.findall(text):
                base = base_domain(host) if is_domain(host) else None
                if base is not None:
                    self._bases.add(base)
                    if any(c.isdigit() for c in host.partition(".")[0]):
                        self._add_host(host)
                if len(self._logins) < MAX_CANDIDATES:
                    self._logins.add((user, host.partition(".")[0].lower()))
        if "wandb" in text or "WANDB" in text or "logged in as" in text:
            for pattern in ACCOUNTS:
                self._users.update(u for u in pattern.findall(text) if _account(u))

    def settle(self) -> None:
        """End of the first pass: number everything in the order of the names."""
        for name in relatives(self._spelled, self._candidates):
            self._add_host(name)
        self._users.update(user for user, host in self._logins if host in self._hosts and _account(user))
        hosts = sorted(self._hosts, key=natural)
        width = max(4, len(str(len(hosts))))
        for number, name in enumerate(hosts, 1):
            self._set(name, "h%0*d" % (width, number))
        for kind, names in (("u", self._users), ("d", self._domains), ("p", self._parts)):
            for name in sorted(names, key=natural):
                self._new(kind, name)

    def _new(self, kind: str, name: str) -> str:
        """The token of a name of this kind: user, domain, part of a path, or service below a known domain."""
        known = self._tokens.get(kind + ":" + name)
        if known is None:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            known = "%s%03d%s" % (kind, self._numbers[kind], ".invalid" if kind == "d" else "")
            self._set(kind + ":" + name, known, name)
        return known

    def _set(self, key: str, token: str, original: Optional[str] = None) -> None:
        self._tokens[key] = token
        self.mapping[token] = original or key

    def _add_host(self, name: str, sure: bool = False) -> None:
        spelled, _, domain = name.partition(".")
        short = spelled.lower()
        base = base_domain(domain)
        if base is not None:
            self._bases.add(base)
        if not short or short in _GENERIC or (not sure and (len(short) < 3 or (short.isalpha() and len(short) < 5))):
            return
        if re.match(r"ip-\d+-\d+-\d+-\d+$", short):
            return
        self._hosts.add(short)
        self._spelled.add(spelled)
        if domain and domain not in ("local", "localdomain"):
            self._domains.add(domain.lower())

    # --- second pass -------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """The text with tokens for what was learned, and with other addresses."""
        text = _PATH.sub(self._path, text)
        if "git@" in text:
            text = REMOTE.sub(lambda m: self._places(m, True), text)
        if "://" in text and self._bases:
            text = URL.sub(lambda m: self._places(m, False), text)
        if "wandb" in text or "WANDB_" in text:
            text = PROJECT.sub(lambda m: m.group(1) + self._part(m.group(2)), text)
        if "@" in text:
            text = MAIL.sub(self._mail, text)
        if self._hosts or self._bases:
            text = _HOSTLIST.sub(self._hostlist, text)
            text = _WORD.sub(self._word, text)
        if self._users:
            text = _WORD_OR_USER.sub(self._user, text)
        text = _LONG_MAC.sub(lambda m: self._hex(m.group(), 3), text)
        text = _MAC.sub(lambda m: self._mac(m.group()), text)
        text = _GUID.sub(lambda m: self._hex(m.group(), 2), text)
        text = _HEX_GUID.sub(lambda m: m.group(1) + (m.group(2) or "") + self._hex(m.group(3), 2), text)
        text = _V6.sub(self._v6, text)
        text = _V4_NAME.sub(lambda m: "ip-" + self._v4_text(m.groups()).replace(".", "-"), text)
        return _V4.sub(lambda m: self._v4_text(m.groups(), m.group()), text)

    def path(self, path: str) -> str:
        """A path inside a bundle: host names in it, nothing else."""
        return "/".join(_WORD.sub(self._word, p) if self._hosts or self._bases else p for p in path.split("/"))

    def _path(self, match: Match[str]) -> str:
        parts = match.group().split("/")
        out, public = parts[:2], False
        for part in parts[2:]:
            public = public or part in ("site-packages", "dist-packages")
            token = None if public or _kept(part) else self._tokens.get("p:" + part)
            if token is not None:
                stem, dot, ending = part.rpartition(".")
                token += dot + ending if stem and dot and ending.isalnum() and len(ending) < 6 else ""
            out.append(part if token is None else token)
        return "/".join(out)

    def _part(self, part: str) -> str:
        stem, dot, ending = part.rpartition(".")
        return part if _kept(part) else self._new("p", part) + (".git" if stem and dot and ending == "git" else "")

    def _places(self, match: Match[str], private: bool) -> str:
        """A remote repository or URL with other names of teams and projects, where its host is of the site or it is
        a private one.
        """
        if not private and self._below(match.group(1).lower()) is None:
            return match.group()
        whole, at = match.group(), match.start(2) - match.start()
        return whole[:at] + "/".join(self._part(p) for p in whole[at:].split("/"))

    def _mail(self, match: Match[str]) -> str:
        user, host = match.groups()
        known = user in self._users or (is_domain(host) and _account(user))
        return (self._new("u", user) if known else user) + match.group()[len(user) :]

    def _below(self, name: str) -> Optional[str]:
        """The base domain, known as one of the site, that a name belongs to."""
        base = base_domain(name)
        return base if base in self._bases else None

    def _word(self, match: Match[str]) -> str:
        word = match.group()
        token = None if UPPER_DEVICE.match(word) and word not in self._spelled else self._host(word)
        if token is not None:
            alone = match.string[match.start() - 1 : match.start()] + match.string[match.end() : match.end() + 1]
            if _plain(word) and any(c in "._/-=" for c in alone.strip()):
                return word
            return token
        if "." not in word:
            return word
        return ".".join(part if _plain(part) else self._host(part) or part for part in word.split("."))

    def _host(self, word: str) -> Optional[str]:
        low = word.lower()
        short, dot, domain = low.partition(".")
        token = self._tokens.get(short) if short in self._hosts else None
        if token is not None:
            if not dot:
                return token
            found = self._tokens.get("d:" + domain)
            if found:
                return token + "." + found
        if dot and self._below(low) is not None:
            if low in self._bases:
                return self._new("d", low)
            return (token or self._new("n", short)) + "." + self._new("d", domain)
        if token is not None:
            return None
        base, dash, ending = low.rpartition("-")
        if dash and not dot and base in self._hosts and (ending[:2] in ("ib", "bm", "op", "hs") or ending.isdigit()):
            return self._tokens[base] + "-" + ending
        return None

    def _hostlist(self, match: Match[str]) -> str:
        names = [self._tokens.get(n) if n in self._hosts else None for n in map(str.lower, expand(*match.groups()))]
        if not names or None in names:
            return match.group()
        return compress([n for n in names if n])

    def _user(self, match: Match[str]) -> str:
        return self._tokens.get("u:" + match.group(), match.group()) if match.group() in self._users else match.group()

    # --- addresses ---------------------------------------------------------------------------------

    def _flip(self, value: int, width: int, first: int, last: int, label: bytes) -> int:
        """Bits first…last (counted from the top) flipped by the key and all bits before them."""
        for bit in range(first, last):
            above = value >> (width - bit)
            mark = hmac.new(self._key, label + b"%d:%d" % (bit, above), hashlib.sha256).digest()[0]
            if mark & 1:
                value ^= 1 << (width - 1 - bit)
        return value

    def _memo(self, kind: str, text: str, made: str) -> str:
        self.mapping.setdefault(made, text)
        self._tokens[kind + text] = made
        return made

    def _v4_text(self, groups: Iterable[str], whole: str = "") -> str:
        numbers = [int(g) for g in groups]
        text = ".".join(map(str, numbers))
        if any(n > 255 for n in numbers) or text in ("0.0.0.0", "255.255.255.255"):
            return whole or text
        known = self._tokens.get("4:" + text)
        if known is not None:
            return known
        a, b = numbers[0], numbers[1]
        if a in (0, 127, 255) or a >= 224 or (a, b) == (169, 254):
            return text
        first = 8
        for start, fixed in (((172, 16), 12), ((192, 168), 16), ((100, 64), 10)):
            if a == start[0] and (b & (0xFF << (16 - fixed) & 0xFF)) == start[1]:
                first = fixed
        value = int(ipaddress.IPv4Address(text))
        made = self._flip(value, 32, first, 24, b"4")
        private = ipaddress.IPv4Address(value).is_private
        if first == 8 and a != 10 and ipaddress.IPv4Address(made).is_private != private:
            made = (value & 0xFFFF0000) | (made & 0xFFFF)
        return self._memo("4:", text, str(ipaddress.IPv4Address(made)))

    def _v6(self, match: Match[str]) -> str:
        text = match.group()
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            return text
        mapped = address.ipv4_mapped
        if mapped is not None:
            made = ipaddress.IPv6Address("::ffff:" + self._v4_text(str(mapped).split(".")))
        else:
            value = int(address)
            prefix = 10 if address.is_link_local else 8 if address.is_private else 3
            value = self._flip(value, 128, prefix, 64, b"6") if prefix != 10 else value
            low = value & ((1 << 64) - 1)
            if low > 0xFFFF:
                low = int(self._hex("%016x" % low, 2), 16)
            made = ipaddress.IPv6Address(value >> 64 << 64 | low)
        shown = made.exploded if len(text) == 39 else ("::ffff:" + str(made.ipv4_mapped) if "." in text else str(made))
        return self._memo("6:", text, shown)

    def _mac(self, text: str) -> str:
        low = text.lower()
        if low.replace("-", ":").startswith(
            ("ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "01:00:5e", "33:33", "01:80:c2")
        ):
            return text
        return self._hex(text, 3)

    def _hex(self, text: str, kept_bytes: int) -> str:
        """Other hex digits of the same shape; the first bytes (the maker) stay."""
        digits = "".join(c for c in text.lower() if c in "0123456789abcdef")
        if set(digits) <= {"0"} or set(digits) == {"f"}:
            return text
        kept = digits[: 2 * kept_bytes]
        mark = hmac.new(self._key, b"x" + digits[2 * kept_bytes :].encode("ascii"), hashlib.sha256).hexdigest()
        fresh = iter(kept + mark * 2)
        made = "".join(next(fresh) if c in "0123456789abcdefABCDEF" else c for c in text)
        return self._memo("x:", text, made)


_WORD_OR_USER = re.compile(r"(?<![\w.-])[A-Za-z][\w.-]{1,31}(?![\w-])")


def _account(name: str) -> bool:
    """Whether a name is that of somebody."""
    return len(name) > 2 and name.lower() not in NO_ACCOUNT and name not in _SYSTEM_USERS


def _plain(word: str) -> bool:
    """Whether a host's name is a short word, which means something else inside of longer names (vm.swappiness)."""
    return len(word) < 5 and word.isalpha()


def _kept(part: str) -> bool:
    return bool(_PUBLIC.match(part)) or part.endswith((".py", ".so")) or ".so." in part or part in ("", ".", "..")
