"""An identity provider of tests: keys of its own, and tokens signed with them."""

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm


class IdentityProvider:
    """Signs tokens; its public keys are to be written where the broker reads them."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {}
        self.add_key("first")

    def add_key(self, key_id: str, *, elliptic: bool = False) -> None:
        self.keys[key_id] = (
            ec.generate_private_key(ec.SECP256R1()) if elliptic else rsa.generate_private_key(65537, 2048)
        )

    def document(self) -> str:
        """The JWKS."""
        entries = []
        for key_id, key in self.keys.items():
            if isinstance(key, rsa.RSAPrivateKey):
                entry: Any = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
            else:
                entry = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
            entries.append({**entry, "kid": key_id, "use": "sig"})
        return json.dumps({"keys": entries})

    def write(self, path: Path) -> Path:
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(self.document())
        return unfinished.rename(path)

    def token(self, user: str = "alice", *, key_id: str = "first", algorithm: str = "", **claims: Any) -> str:
        """A good token for an hour; a claim given as None is left out."""
        now = int(time.time())
        default = {"sub": user, "iat": now, "exp": now + 3600, "iss": "https://issuer", "aud": "ottla"}
        key = self.keys[key_id]
        algorithm = algorithm or ("RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256")
        payload = {name: value for name, value in (default | claims).items() if value is not None}
        return jwt.encode(payload, key, algorithm, headers={"kid": key_id})
