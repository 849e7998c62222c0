"""Certificates and keys of a deployment: one authority for the server, one for the devices, a key
for each node.

The devices' authority is kept, since devices may join later; no device accepts a server certificate
signed by it.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from autofl.files import opening, write_whole

VALID = datetime.timedelta(days=825)
"""As long as common verifiers accept a server certificate."""


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """ca.pem for the devices; server.pem and server.key for the server, valid for these names and
    addresses.

    The authority's own key is thrown away, so nobody can make a certificate for another server from
    what is kept here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, ca = _authority("AutoFL deployment")
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _end_entity(
            _name(hosts[0]),
            ca.subject,
            key.public_key(),
            authority_key,
            ExtendedKeyUsageOID.SERVER_AUTH,
        )
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    write_whole(folder / "ca.pem", _pem(ca))
    write_whole(folder / "server.pem", _pem(certificate))
    _write_secret(folder / "server.key", key, serialization.PrivateFormat.PKCS8)


def certified_hosts(folder: Path) -> list[str]:
    """The names and addresses the server's certificate is for."""
    path = folder / "server.pem"
    with opening(path, "a certificate"):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def make_node_key(path: Path) -> None:
    """The private key of a node and, next to it as .pub, the public key that the server must know."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(path, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    write_whole(path.with_suffix(".pub"), public + b"\n")


def certify_node(folder: Path, path: Path, ue: int) -> None:
    """The certificate of a node's key, with the ending .pem beside it, for UE number `ue` and for
    streams alone.
    """
    if not (folder / "devices.key").is_file():
        key, authority = _authority("AutoFL devices")
        write_whole(folder / "devices.pem", _pem(authority))
        _write_secret(folder / "devices.key", key, serialization.PrivateFormat.PKCS8)
    authority = x509.load_pem_x509_certificate((folder / "devices.pem").read_bytes())
    signer = serialization.load_pem_private_key((folder / "devices.key").read_bytes(), None)
    public = serialization.load_ssh_public_key(path.with_suffix(".pub").read_bytes())
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    certificate = _end_entity(_name(f"ue{ue}"), authority.subject, public, signer, usage).sign(
        signer, hashes.SHA384()
    )
    write_whole(path.with_suffix(".pem"), _pem(certificate))


@dataclass(frozen=True)
class Keys:
    """What a side of a stream presents, and the authority whose certificates it accepts; all PEM."""

    key: bytes
    certificate: bytes
    authority: bytes


def keys_of_server(folder: Path) -> Keys:
    names = ("server.key", "server.pem", "devices.pem")
    return Keys(*((folder / name).read_bytes() for name in names))


def keys_of_device(folder: Path, ue: int) -> Keys:
    path = folder / "nodes" / f"ue{ue}"
    own = serialization.load_ssh_private_key(path.read_bytes(), None)
    form = serialization.PrivateFormat.PKCS8
    key = own.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return Keys(key, path.with_suffix(".pem").read_bytes(), (folder / "ca.pem").read_bytes())


def _authority(common: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name(common)
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign"), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    return key, certificate


def _end_entity(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    use: x509.ObjectIdentifier,
) -> x509.CertificateBuilder:
    return (
        _builder(subject, issuer, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    current_time = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(
            current_time - datetime.timedelta(hours=1)
        )  # clocks of small devices run late
        .not_valid_after(current_time + VALID)
    )


USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def _usage(only: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use == only for use in USES})


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_secret(
    path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> None:
    """Written so that no other user can read it, not even for a moment."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(
            key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        )
