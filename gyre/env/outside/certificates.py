"""A certificate authority of the tool gateway's own, made on first start, for https whose contents are to be recorded.

Whoever trusts `ca.pem` lets the gateway read along: it is for sandboxes, and its key never leaves the folder.
"""

import datetime
import ipaddress
import ssl
import tempfile
from collections import OrderedDict
from pathlib import Path

from gyre import key_files
from gyre.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as _missing:
    raise ConfigError("to read https the package `cryptography` is needed: pip install 'gyre-rl[tools]'") from _missing

HOSTS_MAX = 1024
"""Certificates kept at once; others are made again."""
PUBLIC_MODE = 0o644
"""Of the authority's certificate, which every sandbox reads."""
CA_DAYS, HOST_DAYS = 3650, 30
NAME_CHARS_MAX = 64
"""Of a certificate's common name (X.509); longer hosts stand among the alternative names only."""


class Certificates:
    """`folder` holds ca.pem and ca.key."""

    def __init__(self, folder: Path) -> None:
        self.ca_file = folder / "ca.pem"
        key_pem = key_files.keep(folder / "ca.key", lambda: _pem(ec.generate_private_key(ec.SECP256R1())))
        try:
            self._ca_key = serialization.load_pem_private_key(key_pem, None)
            certificate = key_files.keep(self.ca_file, lambda: _authority(self._ca_key), PUBLIC_MODE)
            self._ca = x509.load_pem_x509_certificate(certificate)
            if self._ca.public_key() != self._ca_key.public_key():
                raise ValueError("one is not of the other")
        except ValueError as error:
            raise ConfigError(
                f"{self.ca_file} or its key cannot be read; remove both to have them made anew: {error}"
            ) from error
        self._host_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    def context(self, host: str) -> ssl.SSLContext:
        """For a server that is `host`."""
        if host not in self._contexts:
            self._contexts[host] = self._made(host)
            if len(self._contexts) > HOSTS_MAX:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(host)
        return self._contexts[host]

    def _made(self, host: str) -> ssl.SSLContext:
        builder = _builder(_name(host[:NAME_CHARS_MAX]), self._ca.subject, self._host_key.public_key(), HOST_DAYS)
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca_key.public_key())
        certificate = builder.add_extension(issuer, critical=False).sign(self._ca_key, hashes.SHA256())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        with tempfile.NamedTemporaryFile() as file:  # ssl loads from files only; this one is ours alone (mode 600)
            file.write(certificate.public_bytes(serialization.Encoding.PEM) + _pem(self._host_key))
            file.flush()
            context.load_cert_chain(file.name)
        return context


def _authority(key: "ec.EllipticCurvePrivateKey") -> bytes:
    """A certificate of our own for `key`, as PEM."""
    name = _name("Gyre tool gateway")
    builder = _builder(name, name, key.public_key(), CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _builder(subject: "x509.Name", issuer: "x509.Name", key: object, days: int) -> "x509.CertificateBuilder":
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> "x509.Name":
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> "x509.GeneralName":
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: object) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
