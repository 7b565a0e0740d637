"""Takes credentials out of texts: by what they look like, by the name they are assigned to, and by value when known.

The same credential becomes the same token everywhere in one bundle (`[SECRET-1f0c9a2b]`); the key of the tokens is
random and forgotten. What stands where a credential stands, and is long and random, is known by value from then on:
before and after that place, and in all later texts. Work follows the findings: a pattern runs only where its literal
occurs, and names are looked for with plain searches, so that logs of many megabytes cost little.
"""

import base64
import hashlib
import hmac
import os
import re
import threading
from collections import deque
from typing import Callable, Deque, Dict, Iterable, List, Match, Optional, Pattern, Tuple

SHAPES: Tuple[Tuple[Tuple[str, ...], Pattern[str]], ...] = tuple(
    (gates, re.compile(pattern))
    for gates, pattern in (
        (("AKIA", "ASIA", "AROA", "AIDA", "ABIA", "ACCA"), r"\b(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}\b"),
        (("gh",), r"\bgh[pousr]_[A-Za-z0-9]{30,255}"),
        (("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{30,255}"),
        (("gl",), r"\bgl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_.-]{18,100}"),
        (("hf_", "api_org_"), r"\b(?:hf_|api_org_)[A-Za-z0-9]{28,60}"),
        (("wandb_",), r"\bwandb_v\d_[A-Za-z0-9_]{30,120}"),
        (("xox", "xapp-"), r"\b(?:xox[abeoprs](?:\.xox[abeoprs])?|xapp)-[A-Za-z0-9-]{10,250}"),
        (("hooks.slack.com",), r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,200}"),
        (("/api/webhooks/",), r"discord(?:app)?\.com/api/webhooks/\d+/[A-Za-z0-9_-]{20,120}"),
        (("webhook.office.com",), r"[\w.-]+\.webhook\.office\.com/webhookb2/[\w@/-]{20,300}"),
        (("AIza",), r"\bAIza[A-Za-z0-9_-]{33,40}"),
        (("ya29.",), r"\bya29\.[A-Za-z0-9_-]{20,400}"),
        (("GOCSPX-",), r"\bGOCSPX-[A-Za-z0-9_-]{20,60}"),
        (("sk-",), r"\bsk-(?:proj-|svcacct-|admin-|ant-[a-z]{2,8}\d{2}-|or-v1-)?[A-Za-z0-9_-]{20,250}"),
        (("gsk_", "r8_", "pplx-", "xai-", "fw_"), r"\b(?:gsk_|r8_|pplx-|xai-|fw_)[A-Za-z0-9]{20,120}"),
        (("nvapi-",), r"\bnvapi-[A-Za-z0-9_-]{20,120}"),
        (("k_live_", "k_test_"), r"\b[rsp]k_(?:live|test)_[A-Za-z0-9]{16,200}"),
        (("SG.",), r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
        (("SK",), r"\bSK[0-9a-f]{32}\b"),
        (("npm_",), r"\bnpm_[A-Za-z0-9]{30,60}"),
        (("pypi-",), r"\bpypi-[A-Za-z0-9_-]{40,400}"),
        (("dckr_",), r"\bdckr_(?:pat|oat)_[A-Za-z0-9_-]{20,60}"),
        (("dop_v1_", "doo_v1_", "dor_v1_"), r"\bdo[opr]_v1_[a-f0-9]{40,80}"),
        (("dapi", "dkea"), r"\b(?:dapi|dkea)[a-f0-9]{32}(?:-\d)?\b"),
        (("hvs.", "hvb.", "hvr."), r"\bhv[sbr]\.[A-Za-z0-9_-]{20,250}"),
        (("atlasv1",), r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{50,100}"),
        (("AGE-SECRET-KEY-",), r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,70}"),
        (("eyJ",), r"\beyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{4,8000}(?:\.[A-Za-z0-9_-]{4,8000}){0,3}"),
        ((":AA",), r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{32,36}\b"),
        (("8Q~", "7Q~"), r"\b[A-Za-z0-9_~.-]{3}[78]Q~[A-Za-z0-9_~.-]{30,40}"),
        (
            ("lin_api_", "glsa_", "glc_", "shpat_", "sntrys_", "rubygems_", "figd_", "ATATT3", "PMAK-", "EAAC", "sgp_"),
            r"\b(?:lin_api_|glsa_|glc_|shpat_|sntrys_|rubygems_|figd_|ATATT3|PMAK-|EAAC|sgp_)[A-Za-z0-9_=+/-]{20,400}",
        ),
        (
            ("$1$", "$2", "$5$", "$6$", "$y$", "$argon2"),
            r"\$(?:1|2[aby]|5|6|y|argon2id?)\$[^\s:$]{1,60}\$[^\s:]{20,200}|\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}",
        ),
    )
)
"""Credentials that can be told by their own form."""

# A group named `value` is the credential; the rest of the match stays.
PLACES: Tuple[Tuple[Tuple[str, ...], Pattern[str]], ...] = tuple(
    (gates, re.compile(pattern, re.IGNORECASE))
    for gates, pattern in (
        (("://",), r"\b[a-z][a-z0-9+.-]{1,20}://(?P<value>[^\s/?#@'\"<>|]{1,400})@"),
        (
            ("uthorization", "UTHORIZATION"),
            r"\bauthorization\b[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)\s{1,3})?(?P<value>[^\s\"',;]{4,8000})",
        ),
        (("earer ", "EARER "), r"\bbearer\s{1,3}(?P<value>[A-Za-z0-9_.~+/=-]{12,8000})"),
        (("ookie", "OOKIE"), r"\b(?:set-)?cookie[\"']?\s{0,3}:\s{0,3}(?P<value>[^\r\n\"']{4,8000})"),
        (("igin", "password", "PASSWORD"), r"\b(?:machine\s+\S+\s+)?login\s+\S+\s+password\s+(?P<value>\S+)"),
        (("achine", "default"), r"\b(?:machine\s+\S+|default)\s+(?:account\s+\S+\s+)?password\s+(?P<value>\S+)"),
        (("password", "assphrase"), r"\bpass(?:word|phrase)\s+(?:is|was)\s*:?\s+[\"']?(?P<value>[^\s\"',;]{4,200})"),
        (("wandb",), r"\bwandb\s+login\s+(?:--?[\w-]+\s+){0,4}(?P<value>[A-Za-z0-9_-]{20,200})(?![\w-])"),
        (("sshpass",), r"\bsshpass\s+-p\s*(?P<value>\S+)"),
        (
            ("curl", "wget", "http"),
            r"\bcurl\b[^\r\n]{0,400}?\s(?:-u|--user)[\s=]+[\"']?(?P<value>[^\s\"']{1,80}:[^\s\"']{1,200})",
        ),
        (("mysql", "mariadb"), r"\bmy(?:sql|sqldump|sqladmin)\b[^\r\n]{0,200}?\s-p(?P<value>[^\s-]\S{2,200})"),
        (("ipmi",), r"\bipmi(?:tool|power|console)\b[^\r\n]{0,200}?\s-P\s*(?P<value>\S{1,200})"),
        (
            ("AccountKey", "accountkey", "SharedAccess"),
            r"\b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=(?P<value>[^\s;\"']{8,400})",
        ),
        (
            ("sig=", "Signature=", "signature="),
            r"[?&;](?:sig|x-amz-signature|x-goog-signature|signature)=(?P<value>[^\s&\"'<>]{8,800})",
        ),
        (
            ("X-Amz-", "X-Goog-", "x-amz-", "x-goog-"),
            r"[?&](?:x-amz-(?:credential|security-token)|x-goog-credential)=(?P<value>[^\s&\"'<>]{8,4000})",
        ),
        (
            ("-data:", '-data"'),
            r"\b(?:client-key|client-certificate|certificate-authority|token)-data[\"']?\s{0,3}:\s{0,3}[\"']?(?P<value>[A-Za-z0-9+/=_-]{16,20000})",
        ),
        (
            ('"auth"', "_auth", "identitytoken"),
            r"(?:\"(?:auth|identitytoken)\"|\b_auth(?:token)?)\s{0,3}[:=]\s{0,3}\"?(?P<value>[A-Za-z0-9+/=_.-]{8,8000})",
        ),
        (
            ("rivate", "RIVATE", "reshared", "RESHARED"),
            r"\b(?:private|preshared)[\s_-]?key[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?P<value>[A-Za-z0-9+/]{42,44}=)",
        ),
        (("snmp", "community"), r"\bcommunity\s{1,3}(?P<value>\S{3,60})\s{1,3}(?:ro|rw)\b"),
        (("sentry", "ingest"), r"https?://(?P<value>[0-9a-f]{32}(?::[0-9a-f]{32})?)@"),
    )
)

# Names that something secret is assigned to. A name may go on before these words, but not after them.
WORDS = """
    password passwd passphrase pwd secret secretkey secret_key secret-key token apikey api_key api-key access_key
    access-key accesskey access_key_id accesskeyid auth_key authkey private_key private-key privatekey
    private_key_id encryption_key signing_key signature_key master_key credential credentials _pass -pass
    client_secret session_key sessionkey storage_key account_key webhook_url license_key _jwt _dsn _pat _sas
    cookie
""".split()
_GATE = re.compile(
    "|".join(re.escape(w) + ("(?![a-z0-9])" if w[0] in "_-" else "") for w in sorted(WORDS, key=len, reverse=True))
)
_STEMS = ("pass", "pwd", "secret", "token", "key", "credential", "webhook", "_jwt", "_dsn", "_pat", "_sas", "cookie")
_ASSIGNED = re.compile(
    r"(?P<quote>\\?[\"'])?(?P<op>\s{0,3}(?:=>|:=|[:=])\s{0,3}|,\s{0,2}(?=\\?[\"'])|\s{1,3}(?=\S))"
    r"(?:\\?[\"']\\?(?P<quoted>[^\"'\\\r\n]{1,4000})|(?P<bare>[^\s\"'\\,;&<>(){}\[\]|]{1,4000}))"
)
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----")
_KEY_RUN = re.compile(r"[A-Za-z0-9+/=]{24,}")
_PUTTY = re.compile(r"Private-Lines: \d{1,4}\r?\n((?:[^\r\n]{0,80}\r?\n){1,60})")
_HARMLESS = re.compile(
    r"(?:\*+|x{3,}|<[^>]*>|\[?(?:secret-[0-9a-f]{8}|redacted|masked|hidden|removed|filtered|omitted)\]?|none|null|nil|true|false|yes|no|on|off|unset|empty|undefined"
    r"|str|string|int|float|bool|bytes|optional|required|default|\$\{?\w+\}?|%[a-z]|\.{2,}|-+|=+|/[\w./-]*)$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?[\d.,:_%/]+(?:e[-+]?\d+)?[kmgtb%s]?$", re.IGNORECASE)
_TOKEN = re.compile(r"\[SECRET-[0-9a-f]{8}\]")
_NUMERIC_OK = ("token", "credential", "credentials", "cookie", "_pat", "_pass", "-pass", "pwd", "secret")
SECRET_NAME = re.compile(
    r"(?:PASS(?:WORD|WD|PHRASE)?|PWD|SECRET|TOKEN|API_?KEY|ACCESS_?KEY(?:_ID)?|AUTH_?KEY|PRIVATE_?KEY|CREDENTIALS?|COOKIE|_KEY|_JWT|_DSN|_PAT|_SAS|_PIN|WEBHOOK\w*)$",
    re.IGNORECASE,
)
"""Environment variables whose value is taken to be secret."""
_NOT_SECRET = re.compile(r"(?:^|_)(?:PWD|OLDPWD)$|TOKENIZER|^SSH_AUTH_SOCK$", re.IGNORECASE)
MIN_KNOWN = 6
MAX_KNOWN = 2000
MIN_TELLING = 16
"""Shortest value that is looked for everywhere because it stood where a credential stands."""
MAX_FOUND = 500
_PATHLIKE = re.compile(r"[~./\\]|\w+://|[\w.-]+(?:/[\w.-]+)*\.[A-Za-z]{1,5}$")


def secret_values(env: Dict[str, str]) -> List[str]:
    """Values of variables that are secret by their name."""
    return [
        value
        for name, value in env.items()
        if SECRET_NAME.search(name) and not _NOT_SECRET.search(name) and len(value) >= MIN_KNOWN and not _plain(value)
    ]


def is_secret_name(name: str) -> bool:
    """Whether a variable's name says that its value is secret."""
    return bool(SECRET_NAME.search(name)) and not _NOT_SECRET.search(name)


def _plain(value: str) -> bool:
    return bool(_HARMLESS.match(value) or (_NUMBER.match(value) and len(value) < 12))


def _telling(value: str) -> bool:
    """Whether a value is so long and random that it means nothing else: no word, number, path or name."""
    if not MIN_TELLING <= len(value) <= 4000 or _plain(value) or _PATHLIKE.match(value) or any(map(str.isspace, value)):
        return False
    kinds = ["1" if c.isdigit() else "a" if c.islower() else "A" if c.isupper() else "" for c in value]
    turns = [a + b for a, b in zip(kinds, kinds[1:]) if a and b and a != b]
    return len(turns) >= len(value) // 3 or sum("1" in t for t in turns) >= max(2, len(value) // 16)


class Cleaner(object):
    """Replaces credentials, for several threads. `known` are values to take out wherever they stand, also as base64 and
    URL-quoted.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._key = os.urandom(16)
        self._lock = threading.Lock()
        self._known: List[Tuple[str, str]] = []
        self._fresh: Deque[str] = deque()
        self.found: List[str] = []
        """Values that became known because they stood where a credential stands, in the order of their discovery."""
        self.learn(known)

    def learn(self, known: Iterable[str]) -> None:
        """Further values that are secret wherever they stand."""
        with self._lock:
            self._add((value.strip() for value in known), _forms)

    def _add(self, values: Iterable[str], forms: Callable[[str], List[str]]) -> None:
        found = dict(self._known)
        for value in values:
            if len(value) >= MIN_KNOWN and not _plain(value) and len(found) <= MAX_KNOWN:
                for form in forms(value):
                    found.setdefault(form, self._instead(form, value))
        if len(found) > len(self._known):
            self._known = sorted(found.items(), key=lambda item: -len(item[0]))

    def _learn_found(self) -> None:
        """What stood where a credential stands becomes known."""
        with self._lock:
            before, fresh = set(self.found), []
            while self._fresh:
                value = self._fresh.popleft()
                if value not in before and len(before) < MAX_FOUND:
                    before.add(value)
                    fresh.append(value)
            self._add(fresh, _written)
            self.found += fresh

    def _taken(self, value: str) -> str:
        """What stands in for a value that stood where a credential stands."""
        for part in {value, value.partition(":")[2]}:
            if _telling(part):
                self._fresh.append(part)
        return self.token(value)

    def _instead(self, form: str, value: str) -> str:
        """What stands in for one form of a known value."""
        return self.token(value)

    def token(self, value: str) -> str:
        """What stands in for a credential."""
        mark = hmac.new(self._key, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:8]
        return "[SECRET-%s]" % mark

    def block(self, value: str) -> str:
        """What stands in for lines of a key."""
        return "\n" + self.token(value) + "\n"

    def clean(self, data: bytes) -> bytes:
        """A text file with its credentials taken out; other bytes stay as they are. UTF-16 is read as such."""
        for mark, codec in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
            if data.startswith(mark):
                return self.text(data.decode(codec, "replace")).encode("utf-8", "replace")
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def masked(self, data: bytes) -> bytes:
        """Binary data with credentials overwritten in place by as many `x`, so that lengths inside stay true."""
        masker = _Masker()
        masker._known = [(value, "x" * len(value)) for value, _ in self._known]
        masked = masker.text(data.decode("latin-1")).encode("latin-1")
        self._fresh.extend(masker.found)
        self._learn_found()
        return masked

    def text(self, text: str) -> str:
        """A text with its credentials taken out."""
        before = self._known
        text = self._by_sight(_swept(text, before))
        self._learn_found()
        return text if self._known is before else _swept(text, self._known)

    def _by_sight(self, text: str) -> str:
        """Credentials that are told by their form, or by where they stand."""
        if "PRIVATE KEY" in text:
            text = self._pem(text)
        if "Private-Lines:" in text:
            text = _PUTTY.sub(lambda m: _swap(m, self.block(m.group(1)), 1), text)
        for gates, pattern in SHAPES:
            if any(g in text for g in gates):
                text = pattern.sub(lambda m: self.token(m.group()), text)
        for gates, pattern in PLACES:
            if any(g in text for g in gates):
                text = pattern.sub(self._place, text)
        return self._named(text)

    def _place(self, match: Match[str]) -> str:
        value = match.group("value")
        if _HARMLESS.match(value) or _TOKEN.search(value):
            return match.group()
        return _swap(match, self._taken(value))

    def _pem(self, text: str) -> str:
        out: List[str] = []
        at: int = 0
        for head in _PEM.finditer(text):
            if head.start() < at:
                continue
            end = text.find("-----END " + head.group(1) + "-----", head.end(), head.end() + 20000)
            if end < 0:
                end = _end_of_key(text, head.end())
            out += [text[at : head.end()], self.block(text[head.end() : end])]
            at = end
        return "".join(out + [text[at:]])

    def _named(self, text: str) -> str:
        lower = text.lower()
        if len(lower) != len(text):
            lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
        if not any(stem in lower for stem in _STEMS):
            return text
        out: List[str] = []
        at: int = 0
        for word in _GATE.finditer(lower):
            if word.start() < at:
                continue
            span = _value_after(text, lower, word.start(), word.end(), word.group())
            if span is not None:
                out += [text[at : span[0]], self._taken(text[span[0] : span[1]])]
                at = span[1]
        return "".join(out + [text[at:]]) if out else text


class _Masker(Cleaner):
    """Overwrites instead of replacing."""

    def token(self, value: str) -> str:
        return "x" * len(value)

    def block(self, value: str) -> str:
        return "x" * len(value)

    def _instead(self, form: str, value: str) -> str:
        return "x" * len(form)


def _swept(text: str, known: List[Tuple[str, str]]) -> str:
    for value, token in known:
        if value in text:
            text = text.replace(value, token)
    return text


def _swap(match: Match[str], value: str, group: "object" = "value") -> str:
    start, end = match.span(group)  # type: ignore[arg-type]
    whole, offset = match.group(), match.start()
    return whole[: start - offset] + value + whole[end - offset :]


def _end_of_key(text: str, start: int) -> int:
    """Where a key that was cut off ends: after the last long run of base64 that is close to the one before."""
    end = start
    for _ in range(200):
        run = _KEY_RUN.search(text, end, end + 200)
        if run is None:
            break
        end = run.end()
    return end


def _value_after(text: str, lower: str, start: int, end: int, word: str) -> Optional[Tuple[int, int]]:
    """Span of the value that is assigned to a name ending in `word`, or None."""
    if (
        lower[end : end + 1].isalnum()
        or lower[end : end + 1] in ("_",)
        or (lower[end : end + 1] == "-" and lower[end + 1 : end + 2].isalnum())
    ):
        return None
    match = _ASSIGNED.match(text, end)
    if match is None:
        return None
    name = "quoted" if match.group("quoted") is not None else "bare"
    value = match.group(name)
    if not match.group("op").strip(" \t"):
        if "\n" in match.group("op") or not _is_option(lower, start):
            return None
    elif match.group("op").lstrip().startswith(",") and not match.group("quote"):
        return None
    elif "\n" in match.group("op") or "\r" in match.group("op"):
        return None
    if name == "bare" and value.lower() in ("bearer", "basic"):
        return None
    if _TOKEN.match(value) or value.startswith("[SECRET-") or "SECRET-" in value[:9] or _HARMLESS.match(value):
        return None
    if len(value) < 3 or (
        word in _NUMERIC_OK
        and _NUMBER.match(value)
        and len(value) < 16
        and word not in ("pwd", "_pass", "-pass", "secret")
    ):
        return None
    if word in ("pwd", "cookie", "_pat", "_dsn", "_sas") and (value.startswith(("/", "~")) or len(value) < 6):
        return None
    return match.span(name)


def _is_option(lower: str, start: int) -> bool:
    """Whether the name is a long option (`--api-key VALUE`): only these take a value after a blank."""
    at = start
    while at > 0 and start - at < 60 and (lower[at - 1].isalnum() or lower[at - 1] in "_.-"):
        at -= 1
    return lower.startswith("--", at)


def _written(value: str) -> List[str]:
    """A value plain and URL-quoted."""
    quoted = "".join(c if c.isalnum() or c in "-_.~" else "%%%02X" % b for c in value for b in c.encode("utf-8"))
    return [value] if quoted == value else [value, quoted]


def _forms(value: str) -> List[str]:
    """A value as it may be written: plain, URL-quoted, inside base64 (the part without neighbours)."""
    found = _written(value)
    if len(value) >= 12:
        raw = value.encode("utf-8")
        found.append(base64.b64encode(raw).decode("ascii").rstrip("="))
        for shift in (1, 2):
            encoded = base64.b64encode(b"\0" * shift + raw).decode("ascii")
            inner = encoded[4 if shift else 0 :].rstrip("=")[:-1]
            if len(inner) >= 12:
                found.append(inner)
    return found
