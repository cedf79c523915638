# ruff: noqa: E501  one shape a place reads better than lines of equal length
"""Made-up secrets of two hundred shapes, and a thousand harmless lines that look a little like them."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable

WORDS = [
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "haven",
    "inlet",
    "jolly",
    "kayak",
    "lemon",
    "maple",
    "north",
    "ocean",
    "pearl",
]
ALNUM = string.ascii_letters + string.digits


def some(rng: random.Random, count: int, alphabet: str = ALNUM) -> str:
    return "".join(rng.choice(alphabet) for _ in range(count))


def secrets(seed: int = 1) -> list[str]:
    """Two hundred and more lines, each with one secret of a shape of its own or in a setting of its own."""
    rng = random.Random(seed)
    low, hexa, upper = (
        string.ascii_lowercase + string.digits,
        "0123456789abcdef",
        string.ascii_uppercase + "234567",
    )

    def word() -> str:
        return rng.choice(WORDS)

    jwt = f"eyJ{some(rng, 20)}.eyJ{some(rng, 30)}.{some(rng, 43)}"
    b64 = base64.b64encode(rng.randbytes(64)).decode()
    keys = [
        f"AKIA{some(rng, 16, upper)}", f"ASIA{some(rng, 16, upper)}", f"sk-ant-api03-{some(rng, 60)}",
        f"sk-{some(rng, 48)}", f"sk-proj-{some(rng, 60)}", f"sk_live_{some(rng, 24)}", f"rk_live_{some(rng, 24)}",
        f"sk_test_{some(rng, 24)}", f"whsec_{some(rng, 32)}", f"ghp_{some(rng, 36)}", f"gho_{some(rng, 36)}",
        f"ghs_{some(rng, 36)}", f"ghu_{some(rng, 36)}", f"github_pat_{some(rng, 22)}_{some(rng, 59)}",
        f"glpat-{some(rng, 20)}", f"glrt-{some(rng, 20)}", f"ATBB{some(rng, 32)}", f"ATATT3x{some(rng, 60)}",
        f"xoxb-{some(rng, 12, string.digits)}-{some(rng, 24)}", f"xoxp-{some(rng, 12, string.digits)}-{some(rng, 32)}",
        f"xapp-1-{some(rng, 11, upper)}-{some(rng, 40, hexa)}",
        f"https://hooks.slack.com/services/T{some(rng, 8, upper)}/B{some(rng, 8, upper)}/{some(rng, 24)}",
        f"https://discord.com/api/webhooks/{some(rng, 18, string.digits)}/{some(rng, 60)}",
        f"M{some(rng, 25)}.{some(rng, 6)}.{some(rng, 30)}", f"AIza{some(rng, 35)}", f"ya29.{some(rng, 60)}",
        f"GOCSPX-{some(rng, 28)}", f"AccountKey={b64}", f"SharedAccessKey={b64[:44]}=",
        f"https://x.blob.core.windows.net/c?sv=2024&sig={some(rng, 43)}%3D",
        f"{some(rng, 9, string.digits)}:{some(rng, 35)}", f"SK{some(rng, 32, hexa)}", f"SG.{some(rng, 22)}.{some(rng, 43)}",
        f"key-{some(rng, 32, hexa)}", f"npm_{some(rng, 36)}", f"registry-{some(rng, 70)}",
        f"hf_{some(rng, 34)}", f"dop_v1_{some(rng, 64, hexa)}", f"hvs.{some(rng, 24)}", f"dapi{some(rng, 32, hexa)}",
        f"shpat_{some(rng, 32, hexa)}", f"sq0atp-{some(rng, 22)}", f"secret_{some(rng, 43)}", f"ntn_{some(rng, 44)}",
        f"PMAK-{some(rng, 24, hexa)}-{some(rng, 34, hexa)}", f"NRAK-{some(rng, 27, upper)}", f"figd_{some(rng, 40)}",
        f"lin_api_{some(rng, 40)}", f"glsa_{some(rng, 32)}_{some(rng, 8, hexa)}", f"sntrys_{some(rng, 60)}",
        f"dckr_pat_{some(rng, 27)}", f"tskey-auth-{some(rng, 30)}", f"pscale_tkn_{some(rng, 40)}",
        f"sbp_{some(rng, 40, hexa)}", f"gsk_{some(rng, 52)}", f"r8_{some(rng, 37)}", f"pplx-{some(rng, 48)}",
        f"xai-{some(rng, 80)}", f"dp.pt.{some(rng, 43)}", f"AGE-SECRET-KEY-1{some(rng, 58, upper)}",
        f"rubygems_{some(rng, 48, hexa)}", jwt, f"Authorization: Bearer {some(rng, 40)}",
        f"Authorization: Basic {base64.b64encode(b'ada:' + rng.randbytes(9)).decode()}",
        "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN OPENSSH PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN EC PRIVATE KEY-----", "-----BEGIN PGP PRIVATE KEY BLOCK-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----",
    ]  # fmt: skip
    urls = [
        f"{scheme}://{word()}:{some(rng, 12)}@db.example.com{rest}"
        for scheme, rest in (
            ("postgres", ":5432/app"), ("postgresql", "/app"), ("mysql", "/x"), ("mongodb+srv", "/x?retry=1"),
            ("redis", ":6379/0"), ("amqp", "/vhost"), ("https", "/repo.git"), ("ftp", "/file"), ("smtp", ":587"),
            ("mssql", "/x"),
        )
    ]  # fmt: skip
    names = [
        "password", "PASSWORD", "passwd", "pwd", "db_password", "DB_PASSWORD", "admin-password", "passphrase", "secret",
        "client_secret", "SECRET_KEY", "app_secret", "api_key", "apikey", "API-KEY", "x-api-key", "access_key",
        "access_token", "auth_token", "AUTH-TOKEN", "token", "refresh_token", "private_key", "signing_key",
        "encryption_key", "webhook_secret", "session_token", "service_password", "master_key", "consumer_secret",
        "deploy_token", "id_token",
    ]  # fmt: skip
    forms = ("{name}={value}", '{name}: "{value}"', "{name} = '{value}'", '"{name}": "{value}"')
    assigned = [
        forms[(n + shift) % 4].format(
            name=name, value=f"{some(rng, 6)}{rng.randint(10, 99)}{some(rng, 8, low)}"
        )
        for n, name in enumerate(names)
        for shift in (0, 1)
    ]
    spoken = [
        f"the password is {word()}{rng.randint(10, 99)}!", f"my pin code is: 4{rng.randint(100, 999)}a",
        f"export TOKEN={some(rng, 24)}", f"curl -H 'X-Api-Key: {some(rng, 32)}' https://example.com",
        f"mysql -u root --password={some(rng, 10)}9", f"login with {word()} and password: {word()}-{rng.randint(100, 999)}",
        f"set API_KEY={some(rng, 32, hexa)}", f"Server=db;User Id=sa;Password={some(rng, 9)}1!;",
    ]  # fmt: skip
    settings = [
        "{}",
        "found {} in the log",
        "key: {} # rotate",
        "export K={}",
        "({})",
        "'{}'",
        "{}, and more",
    ]
    shown = [settings[n % len(settings)].format(key) for n, key in enumerate(keys)]
    more = [settings[(n + 3) % len(settings)].format(key) for n, key in enumerate(keys)]
    return [*shown, *more, *urls, *assigned, *spoken]


def harmless(seed: int = 2) -> list[str]:
    """A thousand lines without a secret."""
    rng = random.Random(seed)
    hexa = "0123456789abcdef"

    def word() -> str:
        return rng.choice(WORDS)

    def uuid() -> str:
        return "-".join(some(rng, n, hexa) for n in (8, 4, 4, 4, 12))

    forms: list[Callable[[], str]] = [
        lambda: f"commit {some(rng, 40, hexa)}",
        lambda: f"sha256:{some(rng, 64, hexa)}",
        lambda: f"md5 {some(rng, 32, hexa)}  {word()}.tar.gz",
        lambda: f"run id {uuid()} finished in {rng.randint(1, 900)} ms",
        lambda: f"see https://example.com/{word()}/{word()}?page={rng.randint(1, 99)}",
        lambda: f"the token count is {rng.randint(100, 9000)}",
        lambda: f"max_tokens: {rng.randint(100, 9000)}",
        lambda: "the password must have at least twelve characters",
        lambda: f"password: ${{{word().upper()}_PASSWORD}}",
        lambda: "api_key = os.environ['API_KEY']",
        lambda: 'api_key: "<your-api-key>"',
        lambda: "token = get_token(user)",
        lambda: "secret: null",
        lambda: "the secret is stored in the vault",
        lambda: "password = settings.DB_PASSWORD",
        lambda: "token: str",
        lambda: "def check(password: str, token: str | None) -> bool:",
        lambda: "pwd: required",
        lambda: f"ssh-rsa AAAAB3NzaC1yc2E{some(rng, 60)} {word()}@example",
        lambda: "-----BEGIN PUBLIC KEY-----",
        lambda: "-----BEGIN CERTIFICATE-----",
        lambda: f"{word()} decided to use {word()} in version {rng.randint(1, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}",
        lambda: f"import {word()} as {word()[0]}",
        lambda: f"{word()}@example.com wrote to {word()}",
        lambda: f"port {rng.randint(1024, 65535)} is used by {word()}",
        lambda: f"10.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(0, 255)}:{rng.randint(80, 9999)}",
        lambda: f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T10:{rng.randint(10, 59)}:00Z INFO {word()} started",
        lambda: f"assert total == {rng.randint(1, 10**9)}",
        lambda: "redis://localhost:6379/0",
        lambda: "postgresql://db.example.com/app",
        lambda: f"git clone git@example.com:{word()}/{word()}.git",
        lambda: "access_token expired; ask the user to sign in again",
        lambda: "a skeleton key opens every door; a secret santa brings gifts",
        lambda: f"class {word().title()}Token(Base): pass",
        lambda: "Authorization: Bearer <token>",
        lambda: "keyboard shortcuts: ctrl-k, ctrl-shift-p",
        lambda: f"position {rng.randint(1, 10**6)}, hash {some(rng, 12, hexa)}",
        lambda: f"data:image/png;base64,iVBORw0KGgo{some(rng, 40)}",
        lambda: f"npm install {word()}@{rng.randint(1, 9)}.0.0",
        lambda: "the passport is valid until 2031",
    ]  # fmt: skip
    return [forms[n % len(forms)]() for n in range(1000)]
