"""Credentials of forty kinds and more, invented, as they stand in environments, command lines, URLs, files and logs.

Each is (kind, text, secret): the secret is the part that must not survive. They are put together from pieces so that no
scanner of repositories takes them for real ones.
"""

from __future__ import annotations

import base64
import hashlib


def _noise(
    seed: str, length: int, alphabet: str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
) -> str:
    digest = b"".join(hashlib.sha256(f"{seed}{n}".encode()).digest() for n in range(1 + length // 32))
    return "".join(alphabet[b % len(alphabet)] for b in digest)[:length]


def _hex(seed: str, length: int) -> str:
    return _noise(seed, length, "0123456789abcdef")


def _upper(seed: str, length: int) -> str:
    return _noise(seed, length, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


def _digits(seed: str, length: int) -> str:
    return _noise(seed, length, "123456789")


def _pem(kind: str) -> tuple[str, str]:
    body = [_noise(kind + str(n), 64) for n in range(6)]
    return "\n".join([f"-----BEGIN {kind}-----", *body, f"-----END {kind}-----"]), body[3]


def _jwt(seed: str) -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"k1"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(f'{{"sub":"system:serviceaccount:{seed}"}}'.encode()).decode().rstrip("=")
    return f"{head}.{body}.{_noise(seed, 86)}"


def canaries() -> list[tuple[str, str, str]]:
    """All of them."""
    made: list[tuple[str, str, str]] = []

    def add(kind: str, secret: str, text: str = "{}") -> None:
        made.append((kind, text.replace("{}", secret), secret))

    add("aws access key id", "AK" + "IA" + _upper("a", 16), "AWS_ACCESS_KEY_ID={}")
    add("aws secret access key", _noise("b", 40), "AWS_SECRET_ACCESS_KEY={}")
    add("aws session token", _noise("c", 300), "aws_session_token = {}")
    add(
        "aws key id in a log",
        "AS" + "IA" + _upper("d", 16),
        "boto3 DEBUG credential scope {}/20261124/us-east-1/s3",
    )
    add(
        "aws signed url", _hex("e", 64), "GET https://bucket.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature={}&x=1"
    )
    add("google api key", "AI" + "za" + _noise("f", 35), "key {} used")
    add("google oauth token", "ya" + "29." + _noise("g", 60))
    add("google client secret", "GOC" + "SPX-" + _noise("h", 28))
    add(
        "azure storage key",
        _noise("i", 86) + "==",
        "AccountName=acc;AccountKey={};EndpointSuffix=core",
    )
    add("azure sas url", _noise("j", 43), "https://acc.blob.core.windows.net/c?sv=2024&sr=c&sig={}&se=2026")
    add("azure client secret", "abc" + "8Q~" + _noise("k", 34), "using {} for login")
    add("huggingface token", "h" + "f_" + _noise("l", 34), "HF_TOKEN={}")
    add("huggingface token in a log", "h" + "f_" + _noise("m", 34), "token {} is not valid for this repository")
    add("wandb key", _hex("n", 40), "WANDB_API_KEY={}")
    add("wandb key in netrc", _hex("o", 40), "machine api.wandb.ai\n  login user\n  password {}")
    add("github token", "gh" + "p_" + _noise("p", 36), "git clone https://x:{}@github.com/org/repo")
    add("github fine-grained token", "github" + "_pat_" + _noise("q", 82))
    add("gitlab token", "gl" + "pat-" + _noise("r", 20))
    add("slack bot token", "xo" + "xb-" + _digits("s", 12) + "-" + _noise("s", 24))
    add(
        "slack webhook",
        "T" + _upper("t", 8) + "/B" + _upper("u", 8) + "/" + _noise("t", 24),
        "https://hooks.slack.com/services/{}",
    )
    add("discord webhook", _noise("u", 68), "https://discord.com/api/webhooks/1234567890/{}")
    add("openai key", "s" + "k-proj-" + _noise("v", 48), "OPENAI_API_KEY={}")
    add("anthropic key", "s" + "k-ant-api03-" + _noise("w", 80))
    add("ngc key", "nv" + "api-" + _noise("x", 64))
    add("stripe key", "s" + "k_live_" + _noise("y", 24))
    add("sendgrid key", "S" + "G." + _noise("z", 22) + "." + _noise("zz", 43))
    add("npm token", "np" + "m_" + _noise("1", 36), "//registry.npmjs.org/:_authToken={}")
    add("pypi token", "py" + "pi-AgEIcHlwaS5vcmc" + _noise("2", 80))
    add("docker token", "dckr" + "_pat_" + _noise("3", 27))
    add(
        "docker config",
        base64.b64encode(b"robot:" + _noise("4", 24).encode()).decode(),
        '{"auths": {"registry": {"auth": "{}"}}}',
    )
    add("databricks token", "da" + "pi" + _hex("5", 32))
    add("vault token", "hv" + "s." + _noise("6", 24))
    add("digitalocean token", "dop" + "_v1_" + _hex("7", 64))
    add("telegram bot token", _digits("8", 9) + ":AA" + _noise("8", 33), "bot{} polling")
    add("json web token", _jwt("ns:default"), "SLURM_JWT={}")
    add("bearer header", _noise("9", 40), "Authorization: Bearer {}")
    add("bearer in a log", _noise("10", 40), "sending bearer {} to endpoint")
    add("basic header", base64.b64encode(b"user:" + _noise("11", 12).encode()).decode(), "> Authorization: Basic {}")
    add("cookie", "sessionid=" + _noise("12", 32), "Set-Cookie: {}; Path=/")
    add("password in a url", _noise("13", 14), "postgresql://trainer:{}@db.example:5432/runs")
    add("password in an environment", "Tr0ub4dor&3", "MLFLOW_TRACKING_PASSWORD={}")
    add("password option", "hunter2hunter2", "python train.py --db-password {} --epochs 3")
    add("password option with =", "hunter3hunter3", "python train.py --password={}")
    add("password in yaml", "correct horse battery", 'password: "{}"')
    add("password in python", "s3cr3tpass", "connect(user='x', password='{}')")
    add("api key in json", _noise("14", 20), '{"api_key": "{}", "model": "x"}')
    add("api key header", _noise("15", 32), "X-Api-Key: {}")
    add("token in a query", _noise("16", 24), "https://host/cb?token={}&x=1")
    add("curl user", "alice:" + _noise("17", 12), "curl -s -u {} https://host/")
    add("sshpass", _noise("18", 10), "sshpass -p {} ssh node")
    add("mysql password", _noise("19", 12), "mysql -h db -p{} runs")
    add("ipmi password", _noise("20", 12), "ipmitool -H bmc -U admin -P {} sel list")
    add("password hash", "$6$" + _noise("21", 8) + "$" + _noise("22", 86), "root:{}:19000:0:99999:7:::")
    add("wireguard key", base64.b64encode(hashlib.sha256(b"23").digest()).decode(), "PrivateKey = {}")
    add("kubeconfig key", base64.b64encode(_noise("24", 200).encode()).decode(), "    client-key-data: {}")
    add("age key", "AGE-SECRET" + "-KEY-1" + _upper("25", 58))
    add("sentry dsn", _hex("26", 32), "https://{}@o1.ingest.sentry.io/2")
    add("terraform token", _noise("27", 14) + ".atlas" + "v1." + _noise("28", 67))
    add("comet key", _noise("29", 25), "COMET_API_KEY={}")
    add("snmp community", "s3cretRW", "snmp-server community {} rw")
    for kind in ("RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY"):
        text, secret = _pem(kind)
        made.append((kind.lower(), text, secret))
    text, secret = _pem("EC PRIVATE KEY")
    made.append(("private key that was cut off", text[: text.index(secret) + 90], secret))
    return made
